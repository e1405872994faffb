"""Headers that a CUDA C++ submission may include; what they include in turn is permitted as well."""

HEADERS = frozenset(
    {
        "cooperative_groups.h", "cuda.h", "cuda_bf16.h", "cuda_fp16.h", "cuda_pipeline.h", "cuda_runtime.h",
        "mma.h", "algorithm", "atomic", "climits", "cstddef", "cstdint", "limits.h", "stddef.h", "stdint.h",
    }
)  # fmt: skip
