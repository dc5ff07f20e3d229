//! Options that select cases.

use super::super::Failure;
use super::command::{Command, SELECTS};
use super::table::{Row, flag, value};
use crate::exit;
use crate::filter::Filter;
use std::path::PathBuf;

/// Which cases.
#[derive(Clone, Debug, Default)]
pub(crate) struct Select {
    pub(crate) filters: Vec<Filter>,
    pub(crate) exact: Vec<String>,
    /// Tags of which a case must have each.
    pub(crate) tags: Vec<String>,
    pub(crate) cases: Option<PathBuf>,
    /// Adds the built-in fault cases; for tests of the harness.
    pub(crate) faults: bool,
}

pub(super) const ROWS: &[Row] = &[
    value(
        "--filter",
        "GLOBS",
        SELECTS,
        "select ids, gtest syntax: 'A*:B*-C*'; repeated filters intersect",
        |args, given| {
            let filter = Filter::parse(given.text()).map_err(|d| Failure::diagnostic(exit::BAD_FILTER, &d))?;
            args.select.filters.push(filter);
            Ok(())
        },
    )
    .env(&["HARNESS_FILTER", "GTEST_FILTER"]),
    value("--exact", "ID", SELECTS, "select one id; may be repeated", |args, given| {
        args.select.exact.push(given.text().into());
        Ok(())
    }),
    value(
        "--tag",
        "NAME",
        SELECTS,
        "select cases whose file has the tag; narrows --filter, may be repeated",
        |args, given| {
            args.select.tags.push(given.text().into());
            Ok(())
        },
    ),
    value(
        "--cases",
        "DIR",
        SELECTS.and(&[Command::Show, Command::Fmt, Command::Doctor]),
        "folder of case files, or one file (default: cases)",
        |args, given| {
            args.select.cases = Some(given.path()?);
            Ok(())
        },
    ),
    flag("--with-faults", SELECTS.and(&[Command::Show]), "", |args, _| {
        args.select.faults = true;
        Ok(())
    }),
];
