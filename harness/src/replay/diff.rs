//! Two texts compared line by line: the shortest list of lines to take out and to
//! put in (Myers' algorithm), and its usual form in print.

/// Lines that stay around a change.
const CONTEXT: usize = 3;
/// Edits after which the texts are taken to have nothing in common: the search
/// needs memory in the square of them.
const MAX_EDITS: usize = 1000;

/// What becomes of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Edit<'a> {
    Stays(&'a str),
    Goes(&'a str),
    Comes(&'a str),
}

impl<'a> Edit<'a> {
    pub(super) fn line(self) -> &'a str {
        match self {
            Edit::Stays(line) | Edit::Goes(line) | Edit::Comes(line) => line,
        }
    }
}

/// How the old text becomes the new one, line by line.
pub(super) fn edits<'a>(old: &'a str, new: &'a str) -> Vec<Edit<'a>> {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let head = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let room = old.len().min(new.len()) - head;
    let tail = old.iter().rev().zip(new.iter().rev()).take(room).take_while(|(a, b)| a == b).count();
    let (a, b) = (&old[head..old.len() - tail], &new[head..new.len() - tail]);
    let mut all: Vec<Edit<'a>> = old[..head].iter().map(|line| Edit::Stays(line)).collect();
    all.extend(middle(a, b));
    all.extend(old[old.len() - tail..].iter().map(|line| Edit::Stays(line)));
    all
}

/// On diagonal `k = x - y`, `reach[k]` is the farthest `x` that `d` edits reach;
/// the tables of all `d` lead back from the end.
fn middle<'a>(a: &[&'a str], b: &[&'a str]) -> Vec<Edit<'a>> {
    let limit = (a.len() + b.len()).min(MAX_EDITS);
    let at = |k: isize| (k + limit as isize + 1) as usize;
    let (mut reach, mut tables) = (vec![0usize; 2 * limit + 3], Vec::new());
    for d in 0..=limit as isize {
        tables.push(reach.clone());
        for k in (-d..=d).step_by(2) {
            let down = k == -d || (k != d && reach[at(k - 1)] < reach[at(k + 1)]);
            let mut x = if down { reach[at(k + 1)] } else { reach[at(k - 1)] + 1 };
            while (x as isize - k) >= 0 && x < a.len() && a.get(x) == b.get((x as isize - k) as usize) {
                x += 1;
            }
            reach[at(k)] = x;
            if x >= a.len() && x as isize - k >= b.len() as isize {
                return back(a, b, &tables, at);
            }
        }
    }
    a.iter().map(|line| Edit::Goes(line)).chain(b.iter().map(|line| Edit::Comes(line))).collect()
}

fn back<'a>(a: &[&'a str], b: &[&'a str], tables: &[Vec<usize>], at: impl Fn(isize) -> usize) -> Vec<Edit<'a>> {
    let (mut x, mut y) = (a.len(), b.len());
    let mut edits = Vec::new();
    for (d, reach) in tables.iter().enumerate().rev() {
        let (d, k) = (d as isize, x as isize - y as isize);
        let down = k == -d || (k != d && reach[at(k - 1)] < reach[at(k + 1)]);
        let (from_x, from_k) = if down { (reach[at(k + 1)], k + 1) } else { (reach[at(k - 1)], k - 1) };
        let from_y = (from_x as isize - from_k) as usize;
        while x > 0 && y > 0 && (d == 0 || (x > from_x && y > from_y)) {
            (x, y) = (x - 1, y - 1);
            edits.push(Edit::Stays(a[x]));
        }
        if d > 0 {
            if down {
                y -= 1;
                edits.push(Edit::Comes(b[y]));
            } else {
                x -= 1;
                edits.push(Edit::Goes(a[x]));
            }
        }
    }
    edits.reverse();
    edits
}

/// The difference as people read it: `-` before lines that go, `+` before those
/// that come, a few others around them, and no more than `most` lines.
pub(crate) fn unified(old: &str, new: &str, most: usize) -> String {
    let all = edits(old, new);
    let changed: Vec<usize> = (0..all.len()).filter(|i| !matches!(all[*i], Edit::Stays(_))).collect();
    let near = |i: usize| {
        let next = changed.partition_point(|c| *c < i);
        let close = |c: Option<&usize>| c.is_some_and(|c| c.abs_diff(i) <= CONTEXT);
        close(changed.get(next)) || (next > 0 && close(changed.get(next - 1)))
    };
    let (mut text, mut shown, mut line) = (String::new(), 0, 1);
    let mut gap = true;
    for (i, edit) in all.iter().enumerate() {
        if near(i) {
            if shown >= most {
                let left = changed.len() - changed.partition_point(|c| *c < i);
                text.push_str(&format!("... and {left} more changed lines\n"));
                break;
            }
            if std::mem::take(&mut gap) {
                text.push_str(&format!("@@ line {line} @@\n"));
            }
            let (sign, content) = match edit {
                Edit::Stays(content) => (' ', content),
                Edit::Goes(content) => ('-', content),
                Edit::Comes(content) => ('+', content),
            };
            text.push_str(&format!("{sign}{content}\n"));
            shown += 1;
        } else {
            gap = true;
        }
        line += usize::from(!matches!(edit, Edit::Comes(_)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::property::property;
    use arbtest::arbitrary::{self, Unstructured};

    /// Both texts must come back out of the edits, which must be `count` in number.
    fn check(old: &str, new: &str, count: usize) {
        let all = edits(old, new);
        let (mut before, mut after, mut changed) = (Vec::new(), Vec::new(), 0);
        for edit in &all {
            match edit {
                Edit::Stays(line) => {
                    before.push(*line);
                    after.push(*line);
                }
                Edit::Goes(line) => before.push(*line),
                Edit::Comes(line) => after.push(*line),
            }
            changed += usize::from(!matches!(edit, Edit::Stays(_)));
        }
        assert_eq!(before, old.lines().collect::<Vec<_>>());
        assert_eq!(after, new.lines().collect::<Vec<_>>());
        assert_eq!(changed, count, "{all:?}");
    }

    #[test]
    fn edits_are_few_and_right() {
        check("", "", 0);
        check("a\nb\n", "a\nb\n", 0);
        check("", "a\nb\n", 2);
        check("a\nb\nc\n", "", 3);
        check("a\nb\nc\na\nb\nb\na\n", "c\nb\na\nb\na\nc\n", 5);
        check("a\nx\nb\ny\nc\n", "a\nz\nb\nc\n", 3);
        check("a\na\na\n", "a\na\n", 1);
        let long = |step: usize| (0..3000).map(|i| format!("{}\n", i * step)).collect::<String>();
        check(&long(2), &long(2).replace("\n100\n", "\n"), 1);
        check(&long(7), &long(7).replace("14\n", "x\n"), 2 * (0..3000).filter(|i| (i * 7) % 100 == 14).count());
    }

    #[test]
    fn random_edits_are_right() {
        let text = |data: &mut Unstructured<'_>| {
            let lines = (0..data.int_in_range(0..=12)?).map(|_| Ok(format!("{}\n", data.int_in_range(0..=3)?)));
            lines.collect::<arbitrary::Result<String>>()
        };
        drop(property(|data| {
            let (old, new) = (text(data)?, text(data)?);
            let all = edits(&old, &new);
            let side = |other: fn(&Edit<'_>) -> bool| -> Vec<&str> {
                let own = all.iter().filter(|edit| !other(edit));
                own.map(|edit| edit.line()).collect()
            };
            assert_eq!(side(|edit| matches!(edit, Edit::Comes(_))), old.lines().collect::<Vec<_>>());
            assert_eq!(side(|edit| matches!(edit, Edit::Goes(_))), new.lines().collect::<Vec<_>>());
            Ok(())
        }));
    }

    #[test]
    fn only_what_is_near_is_shown() {
        let old: String = (0..20).map(|i| format!("{i}\n")).collect();
        let new = old.replace("\n9\n", "\nnine\n");
        let shown = unified(&old, &new, 100);
        assert_eq!(shown, "@@ line 7 @@\n 6\n 7\n 8\n-9\n+nine\n 10\n 11\n 12\n");
        assert_eq!(unified(&old, &new, 4), "@@ line 7 @@\n 6\n 7\n 8\n-9\n... and 1 more changed lines\n");
        assert_eq!(unified(&old, &old, 4), "");
    }
}
