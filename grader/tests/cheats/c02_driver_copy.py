"""EXPECT POLICY; unscreened POLICY/FOREIGN_KERNEL or POLICY/HOST_READ from elementwise_add on a GPU: C2 the CUDA driver is called by ctypes to carry a result over"""

import ctypes


def elementwise_add(x, y, *, out=None):
    out = x.new_empty(x.shape) if out is None else out
    if x.numel():
        total = (x.cpu() + y.cpu()).contiguous()
        size = ctypes.c_size_t(total.numel() * total.element_size())
        target = ctypes.c_uint64(out.data_ptr())
        ctypes.CDLL("libcuda.so.1").cuMemcpyHtoD_v2(target, ctypes.c_void_p(total.data_ptr()), size)
    return out
