//! The locks of what several threads share, by one name: models put others in their place, which
//! try orders of threads (`runtime/tests/models.rs`). Files that have a model say `super::sync`.

pub(crate) use std::sync::atomic::AtomicU64;
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
