//! What the user wants of GPUs: how many or which, and how quiet they must be.

/// Which GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WantedGpus {
    /// The quietest so many.
    Count(usize),
    All,
    /// By UUID, or the beginning of one; MIG devices too.
    Named(Vec<String>),
}

/// Which GPUs are refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum GpuPolicy {
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
    pub(crate) policy: GpuPolicy,
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
        let idle = self.policy != GpuPolicy::Any;
        (self.max_util.or(idle.then_some(0.10)), self.max_mem_used.or(idle.then_some(500 << 20)))
    }
}

/// `0.10` or `10%` as a share.
pub(crate) fn share(text: &str) -> Option<f64> {
    let share = match text.strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().ok()? / 100.0,
        None => text.parse().ok()?,
    };
    (0.0..=1.0).contains(&share).then_some(share)
}

impl WantedGpus {
    /// The value of `--gpus`.
    pub(crate) fn parse(value: &str) -> Option<Self> {
        if value == "all" {
            return Some(WantedGpus::All);
        }
        let named = |word: &&str| word.starts_with("GPU-") || word.starts_with("MIG-");
        let words: Vec<&str> = value.split(',').map(str::trim).collect();
        if words.iter().all(named) {
            return Some(WantedGpus::Named(words.into_iter().map(Into::into).collect()));
        }
        value.parse().ok().filter(|n| (1..=256).contains(n)).map(WantedGpus::Count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_read() {
        assert_eq!([share("0.25"), share("25%"), share("1")], [Some(0.25), Some(0.25), Some(1.0)]);
        for bad in ["25", "NaN", "-1%", "", "%", "some"] {
            assert_eq!(share(bad), None, "{bad}");
        }
    }

    #[test]
    fn an_idle_gpu_has_limits_of_its_own() {
        let options = |policy| GpuOptions { policy, max_util: None, max_mem_used: Some(7), workers_per_gpu: None };
        assert_eq!(options(GpuPolicy::Any).limits(), (None, Some(7)));
        assert_eq!(options(GpuPolicy::Exclusive).limits(), (Some(0.10), Some(7)));
    }

    #[test]
    fn gpus_are_counted_or_named() {
        let names = |list: &[&str]| WantedGpus::Named(list.iter().map(|name| (*name).into()).collect());
        assert_eq!(WantedGpus::parse("4"), Some(WantedGpus::Count(4)));
        assert_eq!(WantedGpus::parse("all"), Some(WantedGpus::All));
        assert_eq!(WantedGpus::parse("GPU-a,MIG-b"), Some(names(&["GPU-a", "MIG-b"])));
        for bad in ["0", "257", "-1", "GPU-a,4", "some", ""] {
            assert!(WantedGpus::parse(bad).is_none(), "{bad}");
        }
    }
}
