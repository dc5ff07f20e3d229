//! What the user wants of GPUs: how many or which, and how quiet they must be.

use crate::units;
use engine::diag::{Diagnostic, Result, code};

/// Which GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// The quietest so many.
    Count(usize),
    All,
    /// By UUID, or the beginning of one; MIG devices too.
    Named(Vec<String>),
}

/// Which GPUs are refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Policy {
    /// Any that works: the quietest first.
    #[default]
    Any,
    /// None that somebody computes on.
    Idle,
    /// As `Idle`, and no other harness may take it during the run.
    Exclusive,
}

/// Limits on the GPUs of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct GpuOptions {
    pub(crate) policy: Policy,
    /// Share of time with a kernel running, 0 to 1.
    pub(crate) max_util: Option<f64>,
    pub(crate) max_mem_used: Option<u64>,
    pub(crate) workers_per_gpu: Option<usize>,
}

/// More processes on one GPU only wait for each other.
pub(crate) const MAX_WORKERS_PER_GPU: usize = 32;

impl GpuOptions {
    /// The limits in force: an idle GPU has 10 % and 500 MiB unless told otherwise.
    pub(crate) fn limits(&self) -> (Option<f64>, Option<u64>) {
        let idle = self.policy != Policy::Any;
        (self.max_util.or(idle.then_some(0.10)), self.max_mem_used.or(idle.then_some(500 << 20)))
    }

    /// Takes one of this part's options; `false` for any other.
    pub(crate) fn option(&mut self, name: &str, value: &str) -> Result<bool> {
        let wrong = |what: &str| Diagnostic::user(code::USAGE, format!("`{name}` needs {what}, not `{value}`"));
        match name {
            "--gpu-policy" => {
                self.policy = match value {
                    "any" => Policy::Any,
                    "idle" => Policy::Idle,
                    "exclusive" => Policy::Exclusive,
                    _ => return Err(wrong("idle, any or exclusive")),
                }
            }
            "--max-gpu-util" => {
                let share = match value.strip_suffix('%') {
                    Some(percent) => percent.trim().parse::<f64>().map(|percent| percent / 100.0),
                    None => value.parse(),
                };
                let share = share.ok().filter(|share| (0.0..=1.0).contains(share));
                self.max_util = Some(share.ok_or_else(|| wrong("a share such as 0.10 or 10%"))?);
            }
            "--max-gpu-mem-used" => {
                let bytes = units::bytes(value).ok_or_else(|| wrong("an amount of memory such as 500MiB"))?;
                self.max_mem_used = Some(bytes);
            }
            "--workers-per-gpu" => match value.parse() {
                Ok(n) if (1..=MAX_WORKERS_PER_GPU).contains(&n) => self.workers_per_gpu = Some(n),
                _ => return Err(wrong(&format!("a number of processes from 1 to {MAX_WORKERS_PER_GPU}"))),
            },
            _ => return Ok(false),
        }
        Ok(true)
    }
}

impl Wanted {
    /// The value of `--gpus`.
    pub(crate) fn parse(value: &str) -> Result<Self> {
        let wrong = |what: String| {
            Diagnostic::user(code::USAGE, what).note("--gpus 4, --gpus all, or --gpus GPU-1a2b...,GPU-3c4d...")
        };
        if value == "all" {
            return Ok(Wanted::All);
        }
        let named = |word: &str| word.starts_with("GPU-") || word.starts_with("MIG-");
        if value.split(',').any(named) {
            let names: Vec<String> =
                value.split(',').map(str::trim).filter(|w| !w.is_empty()).map(Into::into).collect();
            if let Some(odd) = names.iter().find(|name| !named(name)) {
                return Err(wrong(format!("`--gpus` names UUIDs, and `{odd}` is none")));
            }
            return Ok(Wanted::Named(names));
        }
        match value.parse() {
            Ok(n @ 1..=256) => Ok(Wanted::Count(n)),
            _ => Err(wrong(format!("`--gpus` needs a number of GPUs from 1 to 256, `all` or UUIDs, not `{value}`"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, value: &str, wanted: Option<GpuOptions>) {
        let mut options = GpuOptions::default();
        let taken = options.option(name, value);
        assert_eq!(taken.ok().map(|_| options), wanted, "{name} {value}");
    }

    #[test]
    fn options_parse() {
        let base = GpuOptions::default;
        check("--gpu-policy", "idle", Some(GpuOptions { policy: Policy::Idle, ..base() }));
        check("--gpu-policy", "lazy", None);
        check("--max-gpu-util", "0.25", Some(GpuOptions { max_util: Some(0.25), ..base() }));
        check("--max-gpu-util", "25%", Some(GpuOptions { max_util: Some(0.25), ..base() }));
        check("--max-gpu-util", "25", None);
        check("--max-gpu-util", "NaN", None);
        check("--max-gpu-mem-used", "2GiB", Some(GpuOptions { max_mem_used: Some(2 << 30), ..base() }));
        check("--max-gpu-mem-used", "-1", None);
        check("--workers-per-gpu", "3", Some(GpuOptions { workers_per_gpu: Some(3), ..base() }));
        check("--workers-per-gpu", "0", None);
        check("--gpus", "1", Some(base()));
    }

    #[test]
    fn gpus_are_counted_or_named() {
        let names = |list: &[&str]| Wanted::Named(list.iter().map(|name| (*name).into()).collect());
        assert_eq!(Wanted::parse("4").ok(), Some(Wanted::Count(4)));
        assert_eq!(Wanted::parse("all").ok(), Some(Wanted::All));
        assert_eq!(Wanted::parse("GPU-a,MIG-b").ok(), Some(names(&["GPU-a", "MIG-b"])));
        for bad in ["0", "257", "-1", "GPU-a,4", "some", ""] {
            assert!(Wanted::parse(bad).is_err(), "{bad}");
        }
    }
}
