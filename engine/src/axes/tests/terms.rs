//! Index expressions that can be evaluated.

use super::numbers::Numbers;
use crate::axes::{AxisId, IndexBuilder, Offset, ShiftId};
use crate::diag::Result;

/// An expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Term {
    Int(i64),
    Loop(AxisId),
    Extent(AxisId),
    Add(usize, usize),
    Sub(usize, usize),
    Mul(usize, usize),
    Div(usize, usize),
    Rem(usize, usize),
    Lt(usize, usize),
    Ge(usize, usize),
}

/// Makes expressions; equal ones are one.
pub(super) struct Terms<'a> {
    pub(super) numbers: &'a Numbers,
    pub(super) terms: Vec<Term>,
}

impl Terms<'_> {
    pub(super) fn add_term(&mut self, term: Term) -> usize {
        match self.terms.iter().position(|known| *known == term) {
            Some(known) => known,
            None => {
                self.terms.push(term);
                self.terms.len() - 1
            }
        }
    }

    /// The value at a point of the loops. Fails where a kernel may not compute it:
    /// quotients of negative numbers, and by 0.
    pub(super) fn value(&self, term: usize, point: &dyn Fn(AxisId) -> i64) -> i64 {
        let of = |term: usize| self.value(term, point);
        let divided = |a: usize, b: usize| {
            let (a, b) = (of(a), of(b));
            assert!(a >= 0 && b >= 1, "{a} is divided by {b}");
            (a, b)
        };
        match self.terms[term] {
            Term::Int(n) => n,
            Term::Loop(axis) => point(axis),
            Term::Extent(axis) => self.numbers.extent(axis),
            Term::Add(a, b) => of(a) + of(b),
            Term::Sub(a, b) => of(a) - of(b),
            Term::Mul(a, b) => of(a) * of(b),
            Term::Div(a, b) => {
                let (a, b) = divided(a, b);
                a / b
            }
            Term::Rem(a, b) => {
                let (a, b) = divided(a, b);
                a % b
            }
            Term::Lt(a, b) => i64::from(of(a) < of(b)),
            Term::Ge(a, b) => i64::from(of(a) >= of(b)),
        }
    }

    /// As text, for comparison.
    pub(super) fn text(&self, term: usize) -> String {
        let name = |axis: AxisId| &self.numbers.graph[axis].name;
        let both = |a: usize, op: &str, b: usize| format!("({} {op} {})", self.text(a), self.text(b));
        match self.terms[term] {
            Term::Int(n) => n.to_string(),
            Term::Loop(axis) => name(axis).clone(),
            Term::Extent(axis) => format!("|{}|", name(axis)),
            Term::Add(a, b) => both(a, "+", b),
            Term::Sub(a, b) => both(a, "-", b),
            Term::Mul(a, b) => both(a, "*", b),
            Term::Div(a, b) => both(a, "/", b),
            Term::Rem(a, b) => both(a, "%", b),
            Term::Lt(a, b) => both(a, "<", b),
            Term::Ge(a, b) => both(a, ">=", b),
        }
    }
}

impl IndexBuilder for Terms<'_> {
    type Expr = usize;

    fn int(&mut self, value: i64) -> usize {
        self.add_term(Term::Int(value))
    }
    fn extent(&mut self, axis: AxisId) -> Result<usize> {
        Ok(self.add_term(Term::Extent(axis)))
    }
    fn offset(&mut self, offset: &Offset) -> Result<usize> {
        let value = self.numbers.offset(offset);
        Ok(self.int(value))
    }
    fn shift(&mut self, shift: ShiftId, _input: AxisId, vector: i64) -> Result<usize> {
        let value = self.numbers.shift(shift) % vector;
        Ok(self.int(value))
    }
    fn add(&mut self, a: usize, b: usize) -> usize {
        self.add_term(Term::Add(a, b))
    }
    fn sub(&mut self, a: usize, b: usize) -> usize {
        self.add_term(Term::Sub(a, b))
    }
    fn mul(&mut self, a: usize, b: usize) -> usize {
        self.add_term(Term::Mul(a, b))
    }
    fn div(&mut self, a: usize, b: usize) -> usize {
        self.add_term(Term::Div(a, b))
    }
    fn rem(&mut self, a: usize, b: usize) -> usize {
        self.add_term(Term::Rem(a, b))
    }
    fn lt(&mut self, a: usize, b: usize) -> usize {
        self.add_term(Term::Lt(a, b))
    }
    fn ge(&mut self, a: usize, b: usize) -> usize {
        self.add_term(Term::Ge(a, b))
    }
    fn is_true(&self, _condition: usize) -> bool {
        false
    }
}
