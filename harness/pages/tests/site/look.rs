//! Pages in a real browser: nothing overflows, text can be read, and clicks lead where they say.

use super::browser::Browser;
use super::folder::Folder;
use super::given::given;
use super::nights;
use serde_json::json;
use std::path::{Path, PathBuf};

const NIGHTS: usize = 90;
const CASES: usize = 60;

/// Elements that reach beyond the screen, and text whose contrast is too low, in words.
const FAULTS: &str = include_str!("faults.js");

/// A few pages of each kind.
fn kinds(folder: &Path) -> Vec<PathBuf> {
    let tops = ["index", "performance", "cases", "runs", "compare", "flakes", "crashes", "devices", "about", "once"];
    let mut pages: Vec<PathBuf> = tops.iter().map(|name| folder.join(name).with_extension("html")).collect();
    for below in ["case", "run", "file"] {
        let mut all: Vec<PathBuf> =
            std::fs::read_dir(folder.join(below)).expect("a folder").flatten().map(|entry| entry.path()).collect();
        all.sort();
        pages.extend(all.iter().step_by((all.len() / 3).max(1)).take(3).cloned());
        pages.extend(all.last().cloned());
    }
    pages
}

/// Pages of a history that is made up.
fn site(name: &str) -> Folder {
    let folder = Folder::new(name);
    nights::write(&folder.0.join("results"), NIGHTS, CASES).expect("writes");
    pages::write(given(folder.0.join("results"), NIGHTS, CASES), &folder.0.join("pages")).expect("writes");
    folder
}

#[test]
#[ignore = "needs Chromium: cargo test -p pages -- --ignored needs_chromium"]
fn needs_chromium_nothing_overflows_and_text_can_be_read() {
    let folder = site("look");
    let mut browser = Browser::start(&folder.0.join("profile"));
    let mut faults = Vec::new();
    // Those of other results as well, where they are named.
    let named = std::env::var("PAGES").map(|pages| kinds(&std::fs::canonicalize(pages).expect("a folder")));
    for page in kinds(&folder.0.join("pages")).into_iter().chain(named.into_iter().flatten()) {
        for (width, dark) in [(390, false), (390, true), (1280, false), (1280, true), (2560, false), (2560, true)] {
            browser.screen(width, 900, dark);
            browser.open(&page, "");
            browser.eval("document.querySelectorAll('details').forEach((part) => (part.open = true))");
            let found = browser.eval(FAULTS);
            let found = found
                .as_array()
                .expect("a list")
                .iter()
                .map(|fault| format!("{} at {width}, dark {dark}: {fault}", page.display()));
            faults.extend(found);
        }
    }
    faults.extend(browser.complaints.clone());
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// That the test above sees what it is to see.
#[test]
#[ignore = "needs Chromium: cargo test -p pages -- --ignored needs_chromium"]
fn needs_chromium_faults_are_found() {
    let folder = Folder::new("faults");
    let mut browser = Browser::start(&folder.0.join("profile"));
    let check = |browser: &mut Browser, body: &str, fault: &str| {
        let page = folder.0.join("page.html");
        std::fs::write(&page, format!("<!doctype html><meta name=viewport content=\"width=device-width\"><body style='background:#fff;color:#000'>{body}")).expect("writes");
        browser.screen(390, 900, false);
        browser.open(&page, "");
        let found = browser.eval(FAULTS).to_string();
        assert!(found.contains(fault), "{body}: {found}");
        assert_eq!(found == "[]", fault.is_empty(), "{body}: {found}");
    };
    check(&mut browser, "fine", "");
    check(&mut browser, "<div style='width:500px'>wide</div>", "overflow");
    check(&mut browser, "<div style='overflow-x:auto'><div style='width:900px'>scrolls</div></div>", "");
    check(&mut browser, "<p style='color:#999'>grey</p>", "contrast");
    check(&mut browser, "<svg><text y='20' fill='#ccc'>grey</text></svg>", "contrast");
}

#[test]
#[ignore = "needs Chromium: cargo test -p pages -- --ignored needs_chromium"]
fn needs_chromium_search_a_case_and_a_comparison() {
    let folder = site("clicks");
    let pages = folder.0.join("pages");
    let mut browser = Browser::start(&folder.0.join("profile"));
    browser.screen(1280, 900, false);
    browser.open(&pages.join("index.html"), "");

    // The key, two words, down, enter: a case's page.
    browser.key("/");
    browser.until("document.activeElement.id === 'search'");
    browser.call("Input.insertText", json!({ "text": "softmax bf16" }));
    browser.until("document.querySelectorAll('#found li[role=option]').length > 0");
    let first = browser.eval("document.querySelector('#found .id').textContent");
    browser.key("ArrowDown");
    browser.key("Enter");
    browser.until_at("/case/");
    assert_eq!(browser.eval("document.querySelector('h1').textContent"), first);

    // Its drawing says by keys what a run was, and leads there.
    browser.eval("document.querySelector('figure.plot').focus()");
    browser.key("ArrowLeft");
    browser.until("/µs/.test(document.querySelector('figure.plot output').textContent)");
    let told = browser.eval("document.querySelector('figure.plot output').textContent").to_string();
    assert!(told.contains("bench") && told.contains("2025-05-29") && told.contains('['), "{told}");
    browser.click("figure.plot output a");
    browser.until_at("/run/");

    // The run's page leads to the comparison with the one before; another one is picked.
    browser.click("a[href*=compare]");
    browser.until("document.querySelectorAll('#compared h2').length >= 4");
    let asked = browser.eval("location.search").to_string();
    assert!(asked.contains(&nights::run_id(NIGHTS - 1)) && asked.contains(&nights::run_id(NIGHTS - 2)), "{asked}");
    browser.eval(&format!("const a = document.getElementById('a'); a.value = '{}'; a.dispatchEvent(new Event('change', {{ bubbles: true }}))", nights::run_id(0)));
    browser.until("document.querySelectorAll('#compared td a.id').length > 0");
    browser.click("#compared td a.id");
    browser.until_at("/case/");

    // Words without a choice: the list of all cases, narrowed.
    browser.open(&pages.join("cases.html"), "?q=layernorm+f32");
    let shown = browser.eval("[...document.querySelectorAll('ul.cases li')].filter((item) => !item.hidden).every((item) => /LayerNorm.*f32/.test(item.textContent))");
    assert_eq!(shown, json!(true));
    assert!(browser.complaints.is_empty(), "{:?}", browser.complaints);
}

/// Each kind of page is there within a second.
#[allow(clippy::print_stdout, reason = "times are the result")]
#[track_caller]
pub(crate) fn check_opens(folder: &Folder) {
    let mut browser = Browser::start(&folder.0.join("profile"));
    browser.screen(1280, 900, false);
    browser.open(&folder.0.join("pages/about.html"), "");
    for page in kinds(&folder.0.join("pages")) {
        // The best of three: a machine that does something else is not the page's fault.
        let times: Vec<f64> = (0..3).map(|_| browser.open(&page, "")).collect();
        let best = times.iter().copied().fold(f64::INFINITY, f64::min);
        println!("{best:6.0} ms {}", page.strip_prefix(&folder.0).expect("below").display());
        assert!(best < 1000.0, "{}: {times:?}", page.display());
    }
}

/// Pictures of pages of `PAGES` at three widths, light and dark, into `PICTURES`: to be looked at.
#[test]
#[ignore = "for people: PAGES=DIR PICTURES=DIR cargo test -p pages -- --ignored pictures"]
fn pictures() {
    let (Ok(pages), Ok(out)) = (std::env::var("PAGES"), std::env::var("PICTURES")) else {
        panic!("PAGES and PICTURES name the folders");
    };
    let out = PathBuf::from(out);
    std::fs::create_dir_all(&out).expect("a folder");
    let folder = Folder::new("pictures");
    let mut browser = Browser::start(&folder.0.join("profile"));
    let only = std::env::var("ONLY").unwrap_or_default();
    for page in kinds(&std::fs::canonicalize(pages).expect("a folder")) {
        for (width, dark) in [(390, false), (390, true), (1280, false), (1280, true), (2560, false), (2560, true)] {
            let folder = page.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned();
            let stem = page.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let name = format!("{folder}-{stem}-{width}-{}.png", if dark { "dark" } else { "light" });
            if !name.contains(&only) {
                continue;
            }
            browser.screen(width, if width < 600 { 1400 } else { 1100 }, dark);
            browser.open(&page, "");
            browser.eval("new Promise((go) => setTimeout(go, 300))");
            std::fs::write(out.join(name), decoded(&browser.picture(false))).expect("writes");
        }
    }
}

/// Bytes of base 64.
fn decoded(text: &str) -> Vec<u8> {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bytes = Vec::new();
    for four in text.as_bytes().chunks(4) {
        let digits = four.iter().filter_map(|letter| LETTERS.iter().position(|known| known == letter));
        let (mut word, mut count) = (0usize, 0);
        digits.for_each(|digit| (word, count) = (word << 6 | digit, count + 1));
        word <<= 6 * (4 - count);
        bytes.extend((0..count * 6 / 8).map(|at| (word >> (16 - 8 * at)) as u8));
    }
    bytes
}
