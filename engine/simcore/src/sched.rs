//! Who runs next. A scheduler is asked at each visible operation; its choices
//! are a function of its seed and of the sets of ready warps it was shown.

/// A scheduling policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchedPolicy {
    /// Each warp runs until it has to wait. The fastest.
    Greedy,
    /// All warps take turns, one visible operation each.
    Lockstep,
    /// A random ready warp at each visible operation.
    Random(u64),
    /// Random priorities; the leader's is dropped to the lowest at `depth`
    /// random moments (probabilistic concurrency testing).
    Pct {
        /// Drops.
        depth: u32,
        /// Seed.
        seed: u64,
    },
    /// One warp never runs while another can; the victim changes at barriers
    /// of the seed's choice.
    Adversary(u64),
}

/// SplitMix64.
#[derive(Clone, Debug)]
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    pub(crate) fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }
}

/// The state of a policy over warps numbered from 0 (slot times warps of a block
/// plus warp).
#[derive(Clone, Debug)]
pub(crate) struct Scheduler {
    policy: SchedPolicy,
    rng: Rng,
    last: u32,
    picks: u64,
    /// Priorities of PCT, by warp; higher runs first.
    priority: Vec<u64>,
    drops: Vec<u64>,
    victim: u32,
    warps: usize,
    /// Hash of all choices.
    pub(crate) trace: u64,
}

impl Scheduler {
    /// A scheduler for the `index`-th independent part of a launch (a block, or
    /// everything) with at most `warps` warps.
    pub(crate) fn new(policy: SchedPolicy, index: u64, warps: usize) -> Self {
        let seed = match policy {
            SchedPolicy::Greedy | SchedPolicy::Lockstep => 0,
            SchedPolicy::Random(seed) | SchedPolicy::Pct { seed, .. } | SchedPolicy::Adversary(seed) => seed,
        };
        let mut rng = Rng(seed ^ index.wrapping_mul(0xd6e8_feb8_6659_fd93));
        let (mut priority, mut drops) = (Vec::new(), Vec::new());
        if let SchedPolicy::Pct { depth, .. } = policy {
            priority = (0..warps).map(|_| rng.next() | 1 << 63).collect();
            // Moments spread over orders of magnitude, as the length is unknown.
            drops = (0..depth)
                .map(|_| {
                    let scale = rng.below(14);
                    rng.below(2 << scale) as u64
                })
                .collect();
            drops.sort_unstable();
        }
        let victim = rng.below(warps.max(1)) as u32;
        Self { policy, rng, last: u32::MAX, picks: 0, priority, drops, victim, warps, trace: 0x243f_6a88_85a3_08d3 }
    }

    /// How many visible operations the chosen warp may do.
    pub(crate) fn budget(&self) -> u64 {
        if self.policy == SchedPolicy::Greedy { u64::MAX } else { 1 }
    }

    /// Which of two legal orders is taken: whether a divergent branch runs its second side first, or
    /// an asynchronous copy lands as soon as it is started.
    pub(crate) fn flip(&mut self) -> bool {
        match self.policy {
            SchedPolicy::Greedy | SchedPolicy::Lockstep => false,
            _ => self.rng.next() & 1 == 1,
        }
    }

    /// The position in `ready` (ascending, not empty) of the warp that runs.
    pub(crate) fn pick(&mut self, ready: &[u32]) -> usize {
        let choice = match self.policy {
            SchedPolicy::Greedy => 0,
            SchedPolicy::Lockstep => {
                let next = ready.partition_point(|&w| self.last != u32::MAX && w <= self.last);
                if next == ready.len() { 0 } else { next }
            }
            SchedPolicy::Random(_) => self.rng.below(ready.len()),
            SchedPolicy::Pct { .. } => self.pct(ready),
            SchedPolicy::Adversary(_) => self.adversary(ready),
        };
        self.picks += 1;
        self.last = ready[choice];
        self.trace = (self.trace ^ u64::from(self.last)).wrapping_mul(0x1000_0000_01b3).rotate_left(5);
        choice
    }

    fn pct(&mut self, ready: &[u32]) -> usize {
        let leader = |priority: &[u64]| {
            (0..ready.len()).max_by_key(|&i| priority[ready[i] as usize % priority.len()]).unwrap_or(0)
        };
        while self.drops.first().is_some_and(|&moment| moment <= self.picks) {
            let moment = self.drops.remove(0);
            let last = ready[leader(&self.priority)] as usize % self.priority.len();
            // Below all undropped ones; later drops go lower.
            self.priority[last] = u64::MAX / 2 - moment - self.picks;
        }
        leader(&self.priority)
    }

    fn adversary(&mut self, ready: &[u32]) -> usize {
        if ready.len() == 1 {
            if ready[0] == self.victim && self.rng.below(4) == 0 {
                self.victim = self.rng.below(self.warps.max(1)) as u32;
            }
            return 0;
        }
        // Any other than the victim, in runs: the last one goes on if it can,
        // so that one warp gets as far ahead as the barriers allow.
        if self.last != self.victim
            && let Ok(same) = ready.binary_search(&self.last)
            && self.rng.below(64) != 0
        {
            return same;
        }
        let choice = self.rng.below(ready.len());
        if ready[choice] == self.victim { (choice + 1) % ready.len() } else { choice }
    }
}
