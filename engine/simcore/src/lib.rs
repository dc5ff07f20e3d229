//! SIMT bytecode executor.
