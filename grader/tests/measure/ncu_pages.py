"""A page of counters as Nsight Compute writes it; all numbers are synthetic."""

import csv
import io

# Synthetic, in the form of ncu's raw page: names, units, a row for each kernel.
COLUMNS = {
    "ID": ("", "0", "1"),
    "Process ID": ("", "4242", "4242"),
    "Kernel Name": ("", "void ns::tile_kernel<(int)128>(const float *, float *)", "join_kernel"),
    "Block Size": ("", "(256, 1, 1)", "(1,024, 1, 1)"),
    "Grid Size": ("", "(16384, 1, 1)", "(1, 1, 1)"),
    "CC": ("", "9.0", "9.0"),
    "dram__bytes_read.sum": ("Gbyte", "1.5", "0.000004096"),
    "dram__sectors_write.sum": ("sector", "1,000", "0"),
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": ("%", "81.25", "0.5"),
    "gpu__time_duration.sum": ("ns", "1,234,500", "2,048"),
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum": ("", "1,048,576", "n/a"),
    "launch__block_size": ("", "256", "1,024"),
    "launch__grid_size": ("", "16,384", "1"),
    "launch__registers_per_thread": ("register/thread", "128", "32"),
    "launch__shared_mem_per_block_dynamic": ("Kbyte/block", "49.152", "0"),
    "launch__shared_mem_per_block_static": ("byte/block", "1,024", "128"),
    "sass__inst_executed_local_loads": ("inst", "7", "0"),
    "sm__inst_executed_pipe_tensor_op_hmma.avg.pct_of_peak_sustained_active": ("%", "9", "0"),
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed": ("%", "42.5", "0"),
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": ("%", "60.5", "1.5"),
    "smsp__average_warps_issue_stalled_barrier_not_issued_per_issue_active.ratio": ("", "99", "99"),
    "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio": ("", "1.25", "3"),
    "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio": ("", "7.5", "0.5"),
    "smsp__average_warps_issue_stalled_selected_per_issue_active.ratio": ("", "50", "50"),
}


def as_csv(columns):
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return text.getvalue()
