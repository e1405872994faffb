"""Numbers of system calls, for x86-64 and for arm64; None if the call does not exist there."""

from __future__ import annotations

Table = dict[str, tuple[int | None, int | None]]

# Numbers up to this one are of Linux 5.17 or older. Newer calls fail as they do on an older kernel, and
# programs then use an older call.
NEWEST = 450

# Calls that act on the process itself, on its memory, and on files, which Landlock checks. No timer_create: a
# timer may send SIGCONT, which continues a process that the judge has stopped.
ALLOWED: Table = {
    "read": (0, 63), "write": (1, 64), "readv": (19, 65), "writev": (20, 66), "pread64": (17, 67),
    "pwrite64": (18, 68), "preadv": (295, 69), "pwritev": (296, 70), "preadv2": (327, 286),
    "pwritev2": (328, 287), "open": (2, None), "openat": (257, 56), "openat2": (437, 437),
    "creat": (85, None), "close": (3, 57), "close_range": (436, 436), "stat": (4, None), "fstat": (5, 80),
    "lstat": (6, None), "newfstatat": (262, 79), "statx": (332, 291), "statfs": (137, 43),
    "fstatfs": (138, 44), "access": (21, None), "faccessat": (269, 48), "faccessat2": (439, 439),
    "poll": (7, None), "ppoll": (271, 73), "select": (23, None), "pselect6": (270, 72), "lseek": (8, 62),
    "getdents": (78, None), "getdents64": (217, 61), "dup": (32, 23), "dup2": (33, None), "dup3": (292, 24),
    "pipe": (22, None), "pipe2": (293, 59), "sendfile": (40, 71), "splice": (275, 76), "tee": (276, 77),
    "vmsplice": (278, 75), "copy_file_range": (326, 285), "truncate": (76, 45), "ftruncate": (77, 46),
    "fallocate": (285, 47), "fadvise64": (221, 223), "readahead": (187, 213), "fsync": (74, 82),
    "fdatasync": (75, 83), "sync_file_range": (277, 84), "flock": (73, 32), "getcwd": (79, 17),
    "chdir": (80, 49), "fchdir": (81, 50), "rename": (82, None), "renameat": (264, 38),
    "renameat2": (316, 276), "mkdir": (83, None), "mkdirat": (258, 34), "rmdir": (84, None),
    "link": (86, None), "linkat": (265, 37), "unlink": (87, None), "unlinkat": (263, 35),
    "symlink": (88, None), "symlinkat": (266, 36), "readlink": (89, None), "readlinkat": (267, 78),
    "mknod": (133, None), "mknodat": (259, 33), "umask": (95, 166), "getxattr": (191, 8),
    "lgetxattr": (192, 9), "fgetxattr": (193, 10), "listxattr": (194, 11), "llistxattr": (195, 12),
    "flistxattr": (196, 13), "mmap": (9, 222), "mprotect": (10, 226), "munmap": (11, 215), "brk": (12, 214),
    "mremap": (25, 216), "msync": (26, 227), "mincore": (27, 232), "madvise": (28, 233),
    "mlock": (149, 228), "mlock2": (325, 284), "munlock": (150, 229), "mlockall": (151, 230),
    "munlockall": (152, 231), "mbind": (237, 235), "set_mempolicy": (238, 237), "get_mempolicy": (239, 236),
    "set_mempolicy_home_node": (450, 450), "pkey_alloc": (330, 289), "pkey_free": (331, 290),
    "pkey_mprotect": (329, 288), "map_shadow_stack": (453, 453), "mseal": (462, 462),
    "cachestat": (451, 451), "membarrier": (324, 283), "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "rt_sigpending": (127, 136),
    "rt_sigtimedwait": (128, 137), "rt_sigsuspend": (130, 133), "sigaltstack": (131, 132),
    "pause": (34, None), "restart_syscall": (219, 128), "signalfd": (282, None), "signalfd4": (289, 74),
    "eventfd": (284, None), "eventfd2": (290, 19), "epoll_create": (213, None), "epoll_create1": (291, 20),
    "epoll_ctl": (233, 21), "epoll_wait": (232, None), "epoll_pwait": (281, 22), "epoll_pwait2": (441, 441),
    "timerfd_create": (283, 85), "timerfd_settime": (286, 86), "timerfd_gettime": (287, 87),
    "alarm": (37, None), "setitimer": (38, 103),
    "getitimer": (36, 102), "nanosleep": (35, 101), "clock_nanosleep": (230, 115),
    "clock_gettime": (228, 113), "clock_getres": (229, 114), "gettimeofday": (96, 169), "time": (201, None),
    "times": (100, 153), "futex": (202, 98), "futex_waitv": (449, 449), "futex_wake": (454, 454),
    "futex_wait": (455, 455), "futex_requeue": (456, 456), "set_robust_list": (273, 99), "rseq": (334, 293),
    "set_tid_address": (218, 96), "arch_prctl": (158, None), "getcpu": (309, 168), "sched_yield": (24, 124),
    "sched_getaffinity": (204, 123), "sched_get_priority_max": (146, 125),
    "sched_get_priority_min": (147, 126), "getpid": (39, 172), "gettid": (186, 178), "getppid": (110, 173),
    "getpgrp": (111, None), "setpgid": (109, 154), "setsid": (112, 157), "getuid": (102, 174),
    "geteuid": (107, 175), "getgid": (104, 176), "getegid": (108, 177), "getresuid": (118, 148),
    "getresgid": (120, 150), "getgroups": (115, 158), "capget": (125, 90), "getrlimit": (97, 163),
    "setrlimit": (160, 164), "getrusage": (98, 165), "sysinfo": (99, 179), "uname": (63, 160),
    "getrandom": (318, 278), "exit": (60, 93), "exit_group": (231, 94), "wait4": (61, 260),
    "waitid": (247, 95), "getsockname": (51, 204), "getpeername": (52, 205), "setsockopt": (54, 208),
    "getsockopt": (55, 209), "shutdown": (48, 210), "recvfrom": (45, 207), "recvmsg": (47, 212),
    "recvmmsg": (299, 243), "sendmsg": (46, 211), "sendmmsg": (307, 269),
}  # fmt: skip
# What a compiler needs, and the interpreter does not.
PROCESSES: Table = {
    "fork": (57, None), "vfork": (58, None), "execve": (59, 221), "execveat": (322, 281),
}  # fmt: skip
# Not covered by Landlock: modes, owners, times and attributes of any file that this user owns.
ATTRIBUTES: Table = {
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "chown": (92, None), "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54),
    "utime": (132, None), "utimes": (235, None), "futimesat": (261, None), "utimensat": (280, 88),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "removexattr": (197, 14),
    "lremovexattr": (198, 15), "fremovexattr": (199, 16),
}  # fmt: skip
# Permitted for some arguments only.
CHECKED: Table = {
    "fcntl": (72, 25), "ioctl": (16, 29), "prctl": (157, 167), "prlimit64": (302, 261), "kill": (62, 129),
    "tkill": (200, 130), "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240), "sched_setaffinity": (203, 122), "sched_setscheduler": (144, 119),
    "sched_getscheduler": (145, 120), "sched_setparam": (142, 118), "sched_getparam": (143, 121),
    "sched_setattr": (314, 274), "sched_getattr": (315, 275), "setpriority": (141, 140),
    "getpriority": (140, 141), "move_pages": (279, 239), "personality": (135, 92), "socketpair": (53, 199),
    "sendto": (44, 206), "socket": (41, 198), "clone": (56, 220), "clone3": (435, 435),
    "memfd_create": (319, 279), "sched_rr_get_interval": (148, 127), "getpgid": (121, 155),
    "getsid": (124, 156),
}  # fmt: skip
# Refused like everything that is not in the tables above; the probe tries them by name.
REFUSED: Table = {
    "connect": (42, 203), "bind": (49, 200), "listen": (50, 201), "accept4": (288, 242),
    "shmget": (29, 194), "semget": (64, 190), "msgget": (68, 186), "mq_open": (240, 180),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219), "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438), "pidfd_send_signal": (424, 424), "process_madvise": (440, 440),
    "process_mrelease": (448, 448), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "ptrace": (101, 117), "kcmp": (312, 272), "perf_event_open": (298, 241), "bpf": (321, 280),
    "userfaultfd": (323, 282), "io_uring_setup": (425, 425), "io_setup": (206, 0),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265), "mount": (165, 40),
    "umount2": (166, 39), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsmount": (432, 432), "mount_setattr": (442, 442), "pivot_root": (155, 41), "chroot": (161, 51),
    "setns": (308, 268), "unshare": (272, 97), "ioprio_set": (251, 30), "migrate_pages": (256, 238),
    "get_robust_list": (274, 100), "inotify_init1": (294, 26), "fanotify_init": (300, 262),
    "memfd_secret": (447, 447), "timer_create": (222, 107), "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171), "sethostname": (170, 161), "swapon": (167, 224), "acct": (163, 89),
    "reboot": (169, 142), "kexec_load": (246, 104), "init_module": (175, 105), "finit_module": (313, 273),
    "syslog": (103, 116), "quotactl": (179, 60),
}  # fmt: skip
SECCOMP = (317, 277)
