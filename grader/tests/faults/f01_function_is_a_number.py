"""EXPECT COMPILE_ERROR from elementwise_add: F1 the name is there and is no function."""

elementwise_add = 3
