//! Writes all pages into a folder.

use crate::given::Given;
use crate::page;
use crate::site::{Site, Watched};
use rayon::prelude::*;
use std::io;
use std::path::Path;

/// A page of the top folder.
type Top = fn(&Site) -> String;

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    pub pages: usize,
    pub bytes: u64,
    pub cases: usize,
    pub runs: usize,
}

impl Written {
    fn plus(self, other: Self) -> Self {
        Self {
            pages: self.pages + other.pages,
            bytes: self.bytes + other.bytes,
            cases: self.cases + other.cases,
            runs: self.runs + other.runs,
        }
    }
}

/// Tells our own folders from those of others: nothing else is removed.
const MARK: &str = ".fusewright-pages";
const FOLDERS: [&str; 4] = ["case", "run", "file", "data"];

/// Reads the results and writes their pages. A folder that holds something else is refused; one of ours is written anew.
pub fn write(given: Given, folder: &Path) -> io::Result<Written> {
    prepare(folder)?;
    let site = Site::read(given)?;
    let mut out = Out { folder, written: Written { cases: site.order.len(), ..Written::default() } };
    out.put("style.css", include_str!("../assets/style.css"))?;
    out.put("app.js", include_str!("../assets/app.js"))?;
    let tops: [(&str, Top); 10] = [
        ("index.html", page::health),
        ("performance.html", page::performance),
        ("cases.html", page::cases),
        ("runs.html", page::runs),
        ("compare.html", page::compare),
        ("flakes.html", page::flakes),
        ("crashes.html", page::crashes),
        ("devices.html", page::devices),
        ("about.html", page::about),
        ("once.html", page::once),
    ];
    for (name, page) in tops {
        out.page(name, &page(&site))?;
    }
    out.put("data/cases.js", &page::all_cases(&site))?;
    out.put("data/runs.js", &page::all_runs(&site))?;
    for (path, text) in &site.given.files {
        out.page(&page::file_page(path), &page::file(&site, path, text))?;
    }
    let cases = site.order.par_iter().map(|case| out.with_own_count(|out| case_page(&site, *case, out)));
    let runs = site.devices.par_iter().flat_map(|watched| {
        let numbers = (0..watched.device.runs.len() as u32).into_par_iter();
        numbers.map(|number| out.with_own_count(|out| run_page(&site, watched, number, out)))
    });
    let others = cases.chain(runs).try_reduce(Written::default, |one, other| Ok(one.plus(other)))?;
    Ok(out.written.plus(others))
}

fn case_page(site: &Site, case: u32, out: &mut Out<'_>) -> io::Result<()> {
    out.page(&site.case_page(case), &page::case(site, case))
}

fn run_page(site: &Site, watched: &Watched, number: u32, out: &mut Out<'_>) -> io::Result<()> {
    let page = page::run_page(&watched.run(number).id);
    out.page(&page, &page::run(site, watched, number))?;
    let data = page.replacen("run/", "data/", 1).replace(".html", ".js");
    out.put(&data, &page::of_run(site, watched, number))?;
    out.written.runs += 1;
    Ok(())
}

/// An empty folder of ours.
fn prepare(folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let ours = folder.join(MARK).exists();
    if !ours && std::fs::read_dir(folder)?.next().is_some() {
        let message = "the folder holds something that is not ours: name one that is empty or not there";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
    }
    std::fs::write(folder.join(MARK), "")?;
    for name in FOLDERS {
        let path = folder.join(name);
        match std::fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => std::fs::create_dir(&path)?,
        }
    }
    Ok(())
}

struct Out<'a> {
    folder: &'a Path,
    written: Written,
}

impl Out<'_> {
    /// Counts apart what `write` writes into the same folder beside others.
    fn with_own_count(&self, write: impl FnOnce(&mut Self) -> io::Result<()>) -> io::Result<Written> {
        let mut out = Self { folder: self.folder, written: Written::default() };
        write(&mut out)?;
        Ok(out.written)
    }

    fn page(&mut self, name: &str, text: &str) -> io::Result<()> {
        self.written.pages += 1;
        self.put(name, text)
    }

    fn put(&mut self, name: &str, text: &str) -> io::Result<()> {
        self.written.bytes += text.len() as u64;
        std::fs::write(self.folder.join(name), text)
    }
}
