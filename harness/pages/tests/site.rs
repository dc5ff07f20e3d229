//! The written pages as a reader has them: a history of many nights, every link, and a real browser.
//!
//! What needs Chromium is ignored, and asked for by `.ci/run`, which installs it: `cargo test -p pages -- --ignored needs_`.

#[path = "site/browser.rs"]
mod browser;
#[path = "site/folder.rs"]
mod folder;
#[path = "site/given.rs"]
mod given;
#[path = "site/look.rs"]
mod look;
#[path = "site/nights.rs"]
mod nights;
#[path = "site/scale.rs"]
mod scale;
