//! Case harness.
