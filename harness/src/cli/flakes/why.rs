//! `why`: which condition changes the failure rate of a case.
