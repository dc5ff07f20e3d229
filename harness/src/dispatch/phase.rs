//! Limits of single phases: how long a case has been in which.

use crate::crumb::{Page, phase_names};
use crate::{escape, units};
use std::time::{Duration, Instant};

/// Names for several phases.
const GROUPS: [(&str, &[&str]); 3] = [
    ("compile", &["parse", "plan", "schedule", "lower", "codegen", "load"]),
    ("run", &["upload", "launch", "verify", "download", "bench"]),
    ("check", &["inputs", "reference", "compare"]),
];

/// The time that a case may spend in some phases, all visits together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PhaseLimit {
    pub(crate) name: String,
    phases: Vec<String>,
    pub(crate) limit: Duration,
}

impl PhaseLimit {
    /// `compile=20s,run=5s,lower=3s`; the error says what is wrong.
    pub(crate) fn parse(text: &str) -> Result<Vec<Self>, String> {
        text.split(',').map(Self::one).collect()
    }

    fn one(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{}` is not of the form PHASE=TIME, for example compile=20s", escape::short(text));
        let (name, time) = text.split_once('=').ok_or_else(wrong)?;
        let group = GROUPS.iter().find(|(group, _)| *group == name).map(|(_, phases)| phases.to_vec());
        let known = phase_names().find(|phase| *phase == name).map(|phase| vec![phase]);
        let Some(phases) = group.or(known) else {
            let all: Vec<&str> = GROUPS.iter().map(|(group, _)| *group).chain(phase_names()).collect();
            return Err(format!("there is no phase `{}`; there are {}", escape::short(name), all.join(", ")));
        };
        let limit = units::duration_ms(time).filter(|ms| *ms > 0).map(Duration::from_millis).ok_or_else(wrong)?;
        Ok(Self { name: name.into(), phases: phases.into_iter().map(String::from).collect(), limit })
    }
}

/// Adds up the time of one case in each limited group of phases.
pub(super) struct Watch<'a> {
    limits: Vec<(&'a PhaseLimit, Duration)>,
    last: Instant,
}

impl<'a> Watch<'a> {
    pub(super) fn new(limits: &'a [PhaseLimit], now: Instant) -> Self {
        Self { limits: limits.iter().map(|limit| (limit, Duration::ZERO)).collect(), last: now }
    }

    /// Looks where the case is now; the limit that it exceeds, if it does.
    pub(super) fn look(&mut self, page: &Page, now: Instant) -> Option<&'a PhaseLimit> {
        match self.limits.is_empty() {
            true => None,
            false => self.at(page.phase(), now),
        }
    }

    fn at(&mut self, phase: &str, now: Instant) -> Option<&'a PhaseLimit> {
        let since = now.saturating_duration_since(self.last);
        self.last = now;
        self.limits.iter_mut().filter(|(limit, _)| limit.phases.iter().any(|p| p == phase)).find_map(
            |(limit, spent)| {
                *spent += since;
                (*spent >= limit.limit).then_some(*limit)
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_and_phases() {
        let limits = PhaseLimit::parse("compile=20s,launch=500ms").expect("good");
        assert_eq!((limits[0].phases.len(), limits[0].limit), (6, Duration::from_secs(20)));
        assert_eq!(
            (limits[1].phases.as_slice(), limits[1].limit),
            (&["launch".into()][..], Duration::from_millis(500))
        );
        for (text, part) in [
            ("", "PHASE=TIME"),
            ("compile", "PHASE=TIME"),
            ("compile=0s", "PHASE=TIME"),
            ("compile=soon", "PHASE=TIME"),
            ("link=1s", "there are compile, run, check, begin"),
            ("compile=1s,,", "PHASE=TIME"),
        ] {
            let error = PhaseLimit::parse(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn visits_add_up() {
        let limits = PhaseLimit::parse("compile=300ms,launch=100ms").expect("good");
        let start = Instant::now();
        let mut watch = Watch::new(&limits, start);
        let at = |ms| start + Duration::from_millis(ms);
        let name = |limit: Option<&PhaseLimit>| limit.map(|limit| limit.name.clone());
        assert_eq!(watch.at("lower", at(200)), None);
        assert_eq!(watch.at("inputs", at(900)), None);
        assert_eq!(watch.at("launch", at(950)), None);
        assert_eq!(watch.at("codegen", at(1040)), None);
        assert_eq!(name(watch.at("parse", at(1051))), Some("compile".into()));
        assert_eq!(name(watch.at("launch", at(1101))), Some("launch".into()));
    }
}
