//! Extents as numbers: which of them are equal whatever the sizes.
//!
//! A size is a sum of products of *atoms*: scalars that are not sums or products themselves.
//! What operations ask of their operands, equal extents, is a fact about every run, so an atom
//! that equals something else is replaced by it. Two sizes with one form are equal; of others
//! nothing is known.

use super::offset::Sign;
use crate::fusion::{Fusion, ScalarDef, ScalarId};
use crate::num::{BinaryOp, DType, UnaryOp, Value};
use crate::util::{PrimaryMap, SecondaryMap, map_of};
use std::collections::BTreeMap;

/// What sizes are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Atom {
    /// A scalar of the fusion.
    Scalar(ScalarId),
    /// The extent of something, by number, that is too long a product to be written out.
    Extent(usize),
}

/// A product of atoms, in order.
type Product = Vec<Atom>;

/// A sum of products with their factors, none of them 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Size(BTreeMap<Product, i64>);

/// Longer products are atoms, and products of longer sums.
const MAX_FACTORS: usize = 16;
/// Longer sums are atoms.
const MAX_TERMS: usize = 4096;

impl Size {
    pub(super) fn number(number: i64) -> Self {
        Self::term(Vec::new(), number)
    }

    fn atom(atom: Atom) -> Self {
        Self::term(vec![atom], 1)
    }

    fn scalar(scalar: ScalarId) -> Self {
        Self::atom(Atom::Scalar(scalar))
    }

    /// The extent of something, of which nothing better is known.
    pub(super) fn extent(number: usize) -> Self {
        Self::atom(Atom::Extent(number))
    }

    fn term(product: Product, factor: i64) -> Self {
        Self(map_of((factor != 0).then_some((product, factor))))
    }

    /// The number that it is.
    pub(super) fn known(&self) -> Option<i64> {
        match self.only()? {
            ([], factor) => Some(factor),
            _ => None,
        }
    }

    /// The scalar that it is.
    pub(super) fn as_atom(&self) -> Option<ScalarId> {
        match self.only()? {
            ([Atom::Scalar(scalar)], 1) => Some(*scalar),
            _ => None,
        }
    }

    /// Its one product with the factor; the empty product of an empty sum.
    fn only(&self) -> Option<(&[Atom], i64)> {
        let mut terms = self.0.iter();
        match (terms.next(), terms.next()) {
            (None, _) => Some((&[], 0)),
            (Some((product, factor)), None) => Some((product, *factor)),
            _ => None,
        }
    }

    pub(super) fn plus(&self, other: &Self) -> Option<Self> {
        let mut sum = self.0.clone();
        for (product, factor) in &other.0 {
            let entry = sum.entry(product.clone()).or_default();
            *entry = entry.checked_add(*factor)?;
        }
        sum.retain(|_, factor| *factor != 0);
        (sum.len() <= MAX_TERMS).then_some(Self(sum))
    }

    pub(super) fn negated(&self) -> Option<Self> {
        self.times(&Self::number(-1))
    }

    pub(super) fn times(&self, other: &Self) -> Option<Self> {
        if self.0.len() > MAX_FACTORS && other.0.len() > MAX_FACTORS {
            return None;
        }
        let mut sum: BTreeMap<Product, i64> = BTreeMap::new();
        for (a, n) in &self.0 {
            for (b, m) in &other.0 {
                let mut product: Product = a.iter().chain(b).copied().collect();
                product.sort_unstable();
                let entry = sum.entry(product).or_default();
                *entry = entry.checked_add(n.checked_mul(*m)?)?;
            }
        }
        sum.retain(|_, factor| *factor != 0);
        (sum.len() <= MAX_TERMS && sum.keys().all(|product| product.len() <= MAX_FACTORS)).then_some(Self(sum))
    }

    /// `self / by`, where that leaves nothing whatever the sizes are, of sizes that are not 0.
    pub(super) fn exact_quotient(&self, by: &Self) -> Option<Self> {
        let (divisor, n) = by.only().filter(|(_, n)| *n != 0)?;
        let mut quotient = BTreeMap::new();
        for (product, factor) in &self.0 {
            let mut rest = product.clone();
            for atom in divisor {
                let place = rest.iter().position(|other| other == atom)?;
                rest.remove(place);
            }
            if factor % n != 0 {
                return None;
            }
            quotient.insert(rest, factor / n);
        }
        Some(Self(quotient))
    }

    /// The same with atoms replaced where something is known of them.
    fn with(&self, known: impl Fn(Atom) -> Option<Self>) -> Option<Self> {
        let mut result = Self::default();
        for (product, factor) in &self.0 {
            let mut term = Self::number(*factor);
            for atom in product {
                term = term.times(&known(*atom).unwrap_or_else(|| Self::atom(*atom)))?;
            }
            result = result.plus(&term)?;
        }
        Some(result)
    }

    /// What the signs of its terms say, of atoms that are not negative where this is so.
    pub(super) fn sign(&self, not_negative: impl Fn(ScalarId) -> bool) -> Sign {
        let term = |(product, factor): (&Product, &i64)| match product
            .iter()
            .all(|atom| matches!(atom, Atom::Scalar(scalar) if not_negative(*scalar)))
        {
            true => Sign::of(*factor),
            false => Sign::Unknown,
        };
        let signs: Vec<Sign> = self.0.iter().map(term).collect();
        match signs.as_slice() {
            [] => Sign::Zero,
            signs if signs.iter().all(|sign| sign.is_not_negative()) => Sign::NotNegative,
            signs if signs.iter().all(|sign| sign.is_not_positive()) => Sign::NotPositive,
            _ => Sign::Unknown,
        }
    }

    fn scalars(&self) -> impl Iterator<Item = ScalarId> {
        self.0.keys().flatten().filter_map(|atom| match atom {
            Atom::Scalar(scalar) => Some(*scalar),
            Atom::Extent(_) => None,
        })
    }
}

/// The sizes of a fusion, and what its operations say of them.
#[derive(Clone, Debug)]
pub(super) struct Sizes {
    forms: PrimaryMap<ScalarId, Size>,
    /// What atoms are equal to.
    facts: SecondaryMap<ScalarId, Option<Size>>,
}

impl Sizes {
    pub(super) fn new(fusion: &Fusion) -> Self {
        let mut forms: PrimaryMap<ScalarId, Size> = PrimaryMap::new();
        for (id, scalar) in fusion.scalars.iter() {
            let form = if scalar.dtype == DType::I64 { form(&scalar.def, &forms) } else { None };
            forms.push(form.unwrap_or_else(|| Size::scalar(id)));
        }
        Self { forms, facts: SecondaryMap::new() }
    }

    /// Notes that two scalars are equal in every run.
    pub(super) fn equate(&mut self, a: ScalarId, b: ScalarId) {
        let (a, b) = (self.of(a), self.of(b));
        if a == b {
            return;
        }
        // The later scalar gives way, unless the other is a number.
        let sides = if a.as_atom() > b.as_atom() { [(&a, &b), (&b, &a)] } else { [(&b, &a), (&a, &b)] };
        for (atom, size) in sides {
            if let Some(atom) = atom.as_atom()
                && size.scalars().all(|other| other != atom)
            {
                self.facts.set(atom, Some(size.clone()));
                return;
            }
        }
    }

    /// The form of a scalar, in which equal ones are found equal.
    pub(super) fn of(&self, scalar: ScalarId) -> Size {
        self.resolved(self.forms[scalar].clone())
    }

    fn resolved(&self, mut size: Size) -> Size {
        // Facts name atoms of which there were no facts, then.
        for _ in 0..MAX_FACTORS {
            if size.scalars().all(|atom| self.facts[atom].is_none()) {
                break;
            }
            let known = |atom: Atom| match atom {
                Atom::Scalar(scalar) => self.facts[scalar].clone(),
                Atom::Extent(_) => None,
            };
            match size.with(known) {
                Some(simpler) => size = simpler,
                None => break,
            }
        }
        size
    }
}

/// A sum or product in terms of what is known by now; none of what is an atom.
fn form(def: &ScalarDef, known: &PrimaryMap<ScalarId, Size>) -> Option<Size> {
    match *def {
        ScalarDef::Const(Value::Int(number)) => Some(Size::number(number)),
        ScalarDef::Unary(UnaryOp::Neg, a) => known[a].negated(),
        ScalarDef::Binary(BinaryOp::Add, a, b) => known[a].plus(&known[b]),
        ScalarDef::Binary(BinaryOp::Sub, a, b) => known[a].plus(&known[b].negated()?),
        ScalarDef::Binary(BinaryOp::Mul, a, b) => known[a].times(&known[b]),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::util::EntityId;

    fn atom(n: usize) -> Size {
        Size::scalar(ScalarId::from_index(n))
    }

    #[test]
    fn sizes_of_one_form_are_equal() {
        let (a, b) = (atom(0), atom(1));
        let sum = a.plus(&b).unwrap();
        assert_eq!(sum.plus(&b.negated().unwrap()), Some(a.clone()));
        let product = sum.times(&a).unwrap();
        assert_eq!(product.exact_quotient(&a), Some(sum.clone()));
        assert_eq!(product.exact_quotient(&b), None);
        assert_eq!(a.times(&Size::number(6)).unwrap().exact_quotient(&Size::number(4)), None);
        assert_eq!((sum.known(), Size::number(3).known(), Size::default().known()), (None, Some(3), Some(0)));
        assert_eq!(a.times(&Size::number(0)).unwrap(), Size::number(0));
    }

    #[test]
    fn what_is_equal_in_every_run_has_one_form() {
        let forms = (0..4).map(atom).fold(PrimaryMap::new(), |mut forms, form| {
            forms.push(form);
            forms
        });
        let mut sizes = Sizes { forms, facts: SecondaryMap::new() };
        let id = ScalarId::from_index;
        sizes.equate(id(2), id(1));
        sizes.equate(id(3), id(2));
        assert_eq!(sizes.of(id(3)), atom(1));
        sizes.equate(id(1), id(0));
        assert_eq!([1, 2, 3].map(|n| sizes.of(id(n))), [atom(0), atom(0), atom(0)]);
    }
}
