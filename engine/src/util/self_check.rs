//! What must hold, looked at in builds for development only.

/// `assert!`, where the build is one that checks itself. The condition compiles in all.
macro_rules! self_check {
    ($($condition:tt)*) => {
        if cfg!(self_check) {
            assert!($($condition)*);
        }
    };
}

pub(crate) use self_check;
