//! A history that is made up: nights of one model of GPU, with changes of level at known places.
//!
//! Inputs: how many nights and cases. Outputs: a folder of results as the harness leaves it, and what was planted. The same
//! numbers each time.

use std::fmt::Write as _;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// A change of level.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planted {
    pub(crate) night: usize,
    /// In standard deviations of a night, with a sign.
    pub(crate) sigmas: f64,
}

/// Numbers of a normal distribution: splitmix64, then Box and Muller.
struct Normal(u64);

impl Normal {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
    fn uniform(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }
    fn below(&mut self, bound: usize) -> usize {
        (self.bits() % bound as u64) as usize
    }
    fn next(&mut self) -> f64 {
        let (a, b) = (1.0 - self.uniform(), self.uniform());
        (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
    }
}

pub(crate) const FAMILIES: [&str; 20] = [
    "MulAddGelu",
    "SumInner",
    "SumOuter",
    "SumAll",
    "Softmax",
    "RmsNorm",
    "LayerNorm",
    "Dropout",
    "BatchNorm",
    "Transpose",
    "Embedding",
    "GatherRows",
    "Scan",
    "TopK",
    "QuantizeBlocks",
    "SwiGlu",
    "RotaryEmbedding",
    "GroupNorm",
    "CrossEntropy",
    "Resize",
];
const DTYPES: [&str; 4] = ["bf16", "f16", "f32", "f64"];
const DEVICE: &str = "nvidia-h200";

pub(crate) fn case_id(case: usize) -> String {
    let (family, dtype, size) =
        (case % FAMILIES.len(), case / FAMILIES.len() % DTYPES.len(), case / FAMILIES.len() / DTYPES.len());
    format!(
        "RooflineTest.{}/dtype={},m={},n={}",
        FAMILIES[family],
        DTYPES[dtype],
        16_384 >> (size % 6),
        4096 + 257 * (size / 6)
    )
}

/// The name of a night's run: days count from the first of March.
pub(crate) fn run_id(night: usize) -> String {
    let (year, month, day) = date(night);
    format!("{year}{month:02}{day:02}T030000Z-{night:06x}")
}

fn date(night: usize) -> (usize, usize, usize) {
    let (mut year, mut month, mut day) = (2025, 3, 1 + night);
    loop {
        let days = match month {
            2 => 28,
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        };
        if day <= days {
            return (year, month, day);
        }
        (day, month) = (day - days, month + 1);
        if month == 13 {
            (year, month) = (year + 1, 1);
        }
    }
}

/// Writes a history; gives what was planted, by case.
pub(crate) fn write(results: &Path, nights: usize, cases: usize) -> io::Result<Vec<Vec<Planted>>> {
    let folder = results.join("history").join(DEVICE);
    std::fs::create_dir_all(&folder)?;
    std::fs::write(results.join("FORMAT"), "harness-store 1\n")?;
    let mut random = Normal(42);
    let planted: Vec<Vec<Planted>> = (0..cases).map(|_| plants(&mut random, nights)).collect();
    let create = |name: &str| std::fs::File::create(folder.join(name)).map(BufWriter::new);
    let (mut runs, mut perf) = (create("runs.csv")?, create("perf.csv")?);
    let (mut verdicts, mut durations, mut flakes) =
        (create("verdicts.csv")?, create("durations.csv")?, create("flake.csv")?);
    writeln!(runs, "run_id,command,started_utc,commit,dirty,host,gpus,driver,options")?;
    writeln!(
        perf,
        "run_id,commit,case_id,bytes,samples,median_ns,p10_ns,p90_ns,gbps,share_of_copy,copy_gbps,host_us,schedule_ms,lower_ms,codegen_ms,load_ms,kernel_crc,counters"
    )?;
    writeln!(verdicts, "run_id,commit,case_id,verdict,before,outcome")?;
    writeln!(durations, "case_id,runs,dur_us,outcome")?;
    writeln!(flakes, "case_id,runs,failures,rate,low,high,finding,class,last_run,commit")?;
    let base: Vec<(f64, f64)> =
        (0..cases).map(|_| (20e3 * (4.0 * random.uniform()).exp(), 0.002 + 0.01 * random.uniform())).collect();
    let mut failing = vec![false; cases];
    let mut line = String::new();
    for night in 0..nights {
        let (id, commit) = (run_id(night), format!("{:07x}", 0xabc_0000 + night * 7919));
        let (year, month, day) = date(night);
        let gpu = format!("GPU-{:08x}-0000-4000-8000-000000000000", 0x51ab_0000 + random.below(4));
        writeln!(
            runs,
            "{id},bench,{year}-{month:02}-{day:02}T03:00:00Z,{commit},false,node{},{gpu},580.65.06,bench --gpus 1",
            night % 3
        )?;
        for case in 0..cases {
            let (level, noise) = base[case];
            let moved: f64 = planted[case].iter().filter(|plant| plant.night <= night).map(|plant| plant.sigmas).sum();
            let time = level * (1.0 + noise * (moved + random.next()));
            let bytes = level * 3900.0;
            let copy = 4000.0 + 20.0 * random.next();
            let gbps = bytes / time;
            let text = planted[case].iter().filter(|plant| plant.night <= night).count();
            line.clear();
            // Writing to a string does not fail.
            let _ = writeln!(
                line,
                "{id},{commit},\"{}\",{bytes:.0},50,{time:.1},{:.1},{:.1},{gbps:.2},{:.4},{copy:.2},{:.2},{:.3},{:.3},{:.3},{:.3},{:08x},",
                case_id(case),
                time * 0.995,
                time * 1.008,
                gbps / copy,
                5.0 + 0.2 * random.next().abs(),
                0.15,
                0.35,
                80.0 + 2.0 * random.next(),
                0.2,
                0x1000_0000 + case * 64 + text
            );
            perf.write_all(line.as_bytes())?;
            let fails = random.below(60_000) == 0 || failing[case] && random.below(3) > 0;
            let word = |fails: bool| if fails { "fail.numerics" } else { "pass" };
            if night == 0 || fails != failing[case] {
                let before = if night == 0 { "" } else { word(failing[case]) };
                let verdict = if fails { "fail" } else { "pass" };
                writeln!(verdicts, "{id},{commit},\"{}\",{verdict},{before},{}", case_id(case), word(fails))?;
                failing[case] = fails;
            }
        }
    }
    for case in 0..cases {
        let word = if failing[case] { "fail.numerics" } else { "pass" };
        writeln!(durations, "\"{}\",{nights},{:.0},{word}", case_id(case), base[case].0)?;
    }
    for case in (0..cases).step_by(37).take(30) {
        let failures = case % 5;
        writeln!(
            flakes,
            "\"{}\",300,{failures},{:.6},{:.6},{:.6},{},{},{},abc",
            case_id(case),
            failures as f64 / 300.0,
            failures as f64 / 700.0,
            (failures as f64 + 4.0) / 300.0,
            if failures == 0 { "clean" } else { "flaky" },
            if failures == 2 { "state-dependent" } else { "" },
            run_id(nights - 1)
        )?;
    }
    crash(results, nights)?;
    std::fs::create_dir_all(results.join("sweeps"))?;
    let sweep = format!("case,share_before,share\n\"{}\",0.5,0.9\nno case,0.4,\n", case_id(0));
    std::fs::write(results.join("sweeps/rows.csv"), sweep)?;
    for mut file in [runs, perf, verdicts, durations, flakes] {
        file.flush()?;
    }
    Ok(planted)
}

/// None to two changes, far enough from the ends and each other to be told and confirmed.
fn plants(random: &mut Normal, nights: usize) -> Vec<Planted> {
    let count = if nights < 120 { random.below(2) } else { random.below(3) };
    (0..count)
        .map(|at| {
            let part = (nights - 60) / count;
            let sigmas = (4.0 + 6.0 * random.uniform()) * if random.below(2) == 0 { 1.0 } else { -1.0 };
            Planted { night: 40 + at * part + random.below((part - 15).max(1)), sigmas }
        })
        .collect()
}

fn crash(results: &Path, nights: usize) -> io::Result<()> {
    let folder = results.join("crashes/00ff00ff00ff00ff");
    std::fs::create_dir_all(&folder)?;
    let bucket = serde_json::json!({ "v": 1, "leaf": "00ff00ff00ff00ff", "family": "crash.sigsegv in compile",
        "calls": ["engine::lower::index", "engine::lower::lower"], "cuda_error": "", "count": 3, "runs": 2,
        "first": { "run": run_id(3), "utc": "2025-03-04T03:00:00Z", "commit": "abcdef0123" },
        "last": { "run": run_id(nights - 1), "utc": "2026-01-04T03:00:00Z", "commit": "abcdef4567" },
        "devices": { "gpu0": 3 }, "cases": { (case_id(1)): 2, (case_id(5)): 1 }, "exemplar": "runs/x/cases/y" });
    std::fs::write(folder.join("bucket.json"), bucket.to_string())
}
