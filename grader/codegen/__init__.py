"""What the compiler made of a kernel: PTX, SASS, nvcc."""
