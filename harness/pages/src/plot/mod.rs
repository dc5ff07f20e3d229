//! Drawings as SVG that a stylesheet colours: one drawing serves light and dark.
//!
//! `svg` is the backend under plotters' charts: it writes classes in the place of colours. `series` draws a figure over
//! runs, `whiskers` intervals of rates, `roofline` bandwidth over traffic, `spark` a line beside a number.

mod axis;
mod roofline;
mod series;
mod spark;
mod svg;
mod whiskers;

pub(crate) use axis::{percent, short};
pub(crate) use roofline::{Dot, roofline};
pub(crate) use series::{Mark, Place, Point, Series, Size, series};
pub(crate) use spark::spark;
pub(crate) use whiskers::{Whisker, end_of, whiskers};
