//! Results that lie in memory of arguments or of other results have the values that they have
//! in memory of their own.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::property::draws::drawn;
use engine::options::{DeviceDesc, NoTrace, Options, SimOptions};
use engine::program::ResultMemory;
use engine::refeval;
use engine::runtime::Session;
use engine::text;
use testing::Draw;
use testing::fusions::{Limits, arguments, generate};

fn session(alias_results: bool) -> Session {
    let sim = SimOptions { threads: 1, count: false, ..SimOptions::default() };
    Session::simulator(DeviceDesc::h200(), sim, Options { alias_results, ..Options::default() })
}

/// Runs a fusion of the whole language with and without; how many results are views.
fn check(sessions: &[Session; 2], seed: u64) -> Option<usize> {
    let limits = Limits { ops: 12, rank: 3, sizes: vec![0, 1, 2, 3, 5, 8], ..Limits::whole_language() };
    let mut draw = Draw::new(seed);
    let bytes = draw.bytes(24 + seed as usize % 160);
    let generated = generate(&bytes, &limits);
    let (fusion, args) = (&generated.fusion, arguments(&generated, &mut draw));
    refeval::evaluate(fusion, &args).ok()?;
    let [own, aliased] = sessions.each_ref().map(|session| session.run(fusion, &args, &NoTrace).unwrap());
    let updated = |input: u32| fusion.updates.iter().any(|update| update.input == input);
    for (position, (memory, meta)) in aliased.program.result_memories().zip(aliased.program.result_metas()).enumerate()
    {
        let what = || format!("seed {seed}, result {position}\n{}\n{}", text::print(fusion), aliased.program);
        let (a, b) = (&own.outputs[position], &aliased.outputs[position]);
        // Kernels of other shapes round otherwise; what moves nothing has the same bits.
        let is_view = memory != ResultMemory::Own;
        assert!(!is_view || a.to_contiguous().bits_equal(&b.to_contiguous()), "{}", what());
        assert!(b.meta.has_places_of(meta), "{}", what());
        if let ResultMemory::Argument { position: argument, .. } = memory {
            let is_update = fusion.updates.iter().any(|update| update.tensor == fusion.outputs[position]);
            assert_eq!(updated(argument), is_update, "{}", what());
        }
    }
    let updated = own.program.result_memories().filter(|memory| *memory != ResultMemory::Own).count();
    assert!(own.program.result_memories().all(|memory| !matches!(memory, ResultMemory::Result { .. })));
    Some(aliased.program.aliases() - updated)
}

#[test]
fn views_have_the_values_of_copies() {
    let sessions = [session(false), session(true)];
    let seeds = drawn(1500);
    let counts: Vec<usize> = seeds.iter().filter_map(|seed| check(&sessions, *seed)).collect();
    let with = counts.iter().filter(|count| **count > 0).count();
    assert!(counts.len() * 5 > seeds.len() * 4 && with * 10 > seeds.len(), "{} ran, {with} with views", counts.len());
}
