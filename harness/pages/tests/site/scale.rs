//! Pages of many nights: every link, planted changes, time and size.

use super::folder::Folder;
use super::given::given;
use super::look::check_opens;
use super::nights::{self, Planted};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Instant;

/// Texts of all files of a folder, by their paths from there.
fn files(folder: &Path) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(&next).expect("a folder").flatten() {
            if entry.path().is_dir() {
                open.push(entry.path());
            } else {
                let name = entry.path().strip_prefix(folder).expect("below").to_string_lossy().into_owned();
                all.insert(name, std::fs::read_to_string(entry.path()).expect("text"));
            }
        }
    }
    all
}

/// What stands between `name="` and the next quote, wherever it does.
fn attributes<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    let start = format!(" {name}=\"");
    text.split(&start).skip(1).filter_map(|rest| rest.split('"').next()).collect()
}

/// Every link and source leads to a file, and every anchor to an element.
#[track_caller]
fn check_links(files: &BTreeMap<String, String>) {
    let anchors: BTreeMap<&String, BTreeSet<&str>> =
        files.iter().map(|(name, text)| (name, attributes(text, "id").into_iter().collect())).collect();
    let mut links = 0;
    for (name, text) in files.iter().filter(|(name, _)| name.ends_with(".html")) {
        let folder = Path::new(name).parent().expect("a folder");
        for link in attributes(text, "href").into_iter().chain(attributes(text, "src")) {
            if link.starts_with("data:") {
                continue;
            }
            assert!(!link.contains("://"), "{name}: {link} leads out");
            let (path, anchor) = link.split_once('#').map_or((link, None), |(path, anchor)| (path, Some(anchor)));
            let path = path.split('?').next().unwrap_or_default();
            let target = match path {
                "" => name.clone(),
                _ => path
                    .strip_prefix("../")
                    .map_or_else(|| folder.join(path), |up| folder.parent().unwrap_or(Path::new("")).join(up))
                    .to_string_lossy()
                    .into_owned(),
            };
            assert!(files.contains_key(&target), "{name}: {link} leads nowhere");
            assert!(anchor.is_none_or(|anchor| anchors[&target].contains(anchor)), "{name}: {link} has no such place");
            links += 1;
        }
    }
    assert!(links > 100, "{links}");
}

/// The nights that a case's page marks as changes of the kernel's time, by the table of changes.
fn marked(page: &str) -> BTreeSet<String> {
    let table = page.split("<h3>Changes</h3>").nth(1).unwrap_or_default().split("</table>").next().unwrap_or_default();
    let rows = table.split("<tr>").filter(|row| row.contains("<td>Kernel time</td>") && row.contains("confirmed"));
    let run = |row: &str| {
        attributes(row, "href")
            .first()
            .and_then(|link| Some(link.rsplit('/').next()?.trim_end_matches(".html").to_string()))
    };
    rows.filter_map(run).collect()
}

/// Of planted changes, how many are marked within a night of their place; and marks where nothing was planted.
fn found(files: &BTreeMap<String, String>, planted: &[Vec<Planted>]) -> (usize, usize, usize) {
    let pages: BTreeMap<String, &String> = files
        .iter()
        .filter(|(name, _)| name.starts_with("case/"))
        .filter_map(|(_, text)| {
            let id = text.split("--exact '").nth(1)?.split('\'').next()?;
            Some((id.to_string(), text))
        })
        .collect();
    let (mut hit, mut total, mut wrong) = (0, 0, 0);
    for (case, plants) in planted.iter().enumerate() {
        let marks = marked(pages[&nights::case_id(case)]);
        let near = |plant: &Planted| {
            (plant.night.saturating_sub(1)..=plant.night + 1).map(nights::run_id).collect::<BTreeSet<_>>()
        };
        total += plants.len();
        hit += plants.iter().filter(|plant| !near(plant).is_disjoint(&marks)).count();
        wrong += marks.iter().filter(|mark| !plants.iter().any(|plant| near(plant).contains(*mark))).count();
    }
    (hit, total, wrong)
}

#[test]
fn every_link_leads_somewhere_and_nothing_is_code() {
    let folder = Folder::new("links");
    let (nights, cases) = (90, 60);
    let planted = nights::write(&folder.0.join("results"), nights, cases).expect("writes");
    let given = given(folder.0.join("results"), nights, cases);
    pages::write(given.clone(), &folder.0.join("pages")).expect("writes");
    let first = files(&folder.0.join("pages"));
    check_links(&first);
    let (hit, total, _) = found(&first, &planted);
    assert_eq!(hit, total, "planted changes that are marked");
    for (name, text) in first.iter().filter(|(name, _)| name.ends_with(".html")) {
        assert!(!text.contains("<script>") && !text.contains("<b>\""), "{name}");
        assert!(!text.contains("NaN") && !text.contains("inf\u{202f}"), "{name}");
    }
    // Once more, into the folder that has them: the same bytes.
    pages::write(given, &folder.0.join("pages")).expect("writes");
    assert!(files(&folder.0.join("pages")) == first);
}

#[test]
fn a_folder_of_others_is_left_alone_and_results_may_be_empty() {
    let folder = Folder::new("others");
    let theirs = folder.0.join("theirs");
    std::fs::create_dir_all(&theirs).expect("a folder");
    std::fs::write(theirs.join("index.html"), "mine").expect("writes");
    let given = pages::Given { results: folder.0.join("none"), ..pages::Given::default() };
    assert!(pages::write(given.clone(), &theirs).is_err());
    assert_eq!(std::fs::read_to_string(theirs.join("index.html")).expect("reads"), "mine");
    pages::write(given, &folder.0.join("empty")).expect("writes");
    assert!(files(&folder.0.join("empty"))["index.html"].contains("Nothing is recorded yet"));
}

/// 400 nights of 2,000 cases. Ignored: its history is 160 MB.
#[test]
#[ignore = "takes a minute and needs Chromium and a quiet machine: cargo test -p pages -- --ignored needs_time"]
fn needs_time_many_nights_are_quick_small_marked_and_open_at_once() {
    let folder = Folder::new("nights");
    let (nights, cases) = (400, 2000);
    let planted = nights::write(&folder.0.join("results"), nights, cases).expect("writes");
    let started = Instant::now();
    let written =
        pages::write(given(folder.0.join("results"), nights, cases), &folder.0.join("pages")).expect("writes");
    let seconds = started.elapsed().as_secs_f64();
    let (hit, total, wrong) = found(&files(&folder.0.join("pages")), &planted);
    println!(
        "{seconds:.1} s, {} MB, {hit} of {total} planted changes marked within a night, {wrong} marks elsewhere",
        written.bytes / 1_000_000
    );
    assert!(seconds <= 60.0 && written.bytes <= 100_000_000, "{seconds} s, {written:?}");
    // One of four standard deviations is now and then a night more off.
    assert!(hit as f64 >= 0.995 * total as f64, "{hit} of {total}");
    assert!((wrong as f64) < 0.0001 * (nights * cases) as f64, "{wrong}");
    check_opens(&folder);
}
