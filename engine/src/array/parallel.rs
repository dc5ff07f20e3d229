//! Loops on the threads of the pool.
//!
//! One driver, [`each`], knows the pool, and it is no generic function: what
//! runs within a chunk of elements is generic and is inlined there, what hands
//! the chunks to threads is compiled once. The one virtual call of a chunk is
//! lost among its elements; a driver for each closure was half of the crate's
//! machine code.
//!
//! Which thread runs what, and in which order, is not determined: a task writes
//! only what it was given.

use rayon::prelude::*;
use std::sync::{Mutex, PoisonError};

/// Elements of one task where an element is cheap.
pub(crate) const CHUNK: usize = 1 << 14;

/// Calls `task` for each number below `count`.
pub(crate) fn each(count: usize, task: &(dyn Fn(usize) + Sync)) {
    match count {
        0 => {}
        1 => task(0),
        _ => (0..count).into_par_iter().for_each(task),
    }
}

/// Gives each item to `task`.
pub(crate) fn consume<I: Send>(items: Vec<I>, task: &(dyn Fn(I) + Sync)) {
    // A lock is what hands a value to another thread without `unsafe`; nobody
    // waits for one, since each item has its own.
    let items: Vec<Mutex<Option<I>>> = items.into_iter().map(|item| Mutex::new(Some(item))).collect();
    each(items.len(), &|i| {
        let item = items[i].lock().unwrap_or_else(PoisonError::into_inner).take();
        item.into_iter().for_each(task);
    });
}

/// Calls `task(i, chunk)` for each chunk of `size` elements, the `i`-th one in
/// order; the last one may be shorter.
pub(crate) fn chunks<T: Send>(elements: &mut [T], size: usize, task: &(dyn Fn(usize, &mut [T]) + Sync)) {
    if elements.len() <= size {
        if !elements.is_empty() {
            task(0, elements);
        }
        return;
    }
    consume(elements.chunks_mut(size).enumerate().collect(), &|(i, chunk)| task(i, chunk));
}

/// As [`chunks`], where one of `size` elements is too little work for a task.
pub(crate) fn rows<T: Send>(elements: &mut [T], size: usize, task: &(dyn Fn(usize, &mut [T]) + Sync)) {
    let together = (CHUNK / size).max(1);
    chunks(elements, size * together, &|i, rows| {
        rows.chunks_mut(size).enumerate().for_each(|(row, elements)| task(i * together + row, elements));
    });
}

/// Elements that are made in a cache before they are written to memory. Few: they lie on a stack, and where the loop over
/// blocks is inlined into what divides the work, a thread that waits takes on another part below them.
const BLOCK: usize = 256;

/// `len` elements: `fill(start, out)` writes those from `start` on; what it leaves is default.
pub(crate) fn filled<T: Copy + Default + Send + Sync>(len: usize, fill: &(dyn Fn(usize, &mut [T]) + Sync)) -> Vec<T> {
    filled_over(T::default(), len, fill)
}

/// The same; what it leaves is `empty`. Memory is written once: to clear it first takes as long as most of what is
/// computed.
pub(crate) fn filled_over<T: Copy + Send + Sync>(
    empty: T,
    len: usize,
    fill: &(dyn Fn(usize, &mut [T]) + Sync),
) -> Vec<T> {
    let block = |number: usize| {
        let mut block = [empty; BLOCK];
        fill(number * BLOCK, &mut block);
        block
    };
    let whole = len / BLOCK;
    // With room for the rest.
    let mut blocks = Vec::with_capacity(len.div_ceil(BLOCK));
    match len > CHUNK {
        true => (0..whole).into_par_iter().with_min_len(CHUNK / BLOCK).map(block).collect_into_vec(&mut blocks),
        false => blocks.extend((0..whole).map(block)),
    }
    let mut elements = blocks.into_flattened();
    elements.resize(len, empty);
    if whole * BLOCK < len {
        fill(whole * BLOCK, &mut elements[whole * BLOCK..]);
    }
    elements
}

/// So many default values. Memory that was used before is cleared by all threads, where
/// the allocator would do it on one.
pub(crate) fn defaults<T: Copy + Default + Send + Sync>(len: usize) -> Vec<T> {
    if len <= CHUNK {
        return vec![T::default(); len];
    }
    let mut elements = Vec::new();
    rayon::iter::repeat_n(T::default(), len).with_min_len(CHUNK).collect_into_vec(&mut elements);
    elements
}

/// Adds elements behind others. Memory is written once.
pub(crate) fn extend<T: Copy + Send + Sync>(elements: &mut Vec<T>, more: &[T]) {
    match std::mem::size_of_val(more) > CHUNK {
        true => elements.par_extend(more.par_iter().with_min_len(CHUNK / size_of::<T>().max(1)).copied()),
        false => elements.extend_from_slice(more),
    }
}

/// What `task` returns for each number below `count`, in order. Each is work enough for a task.
pub(crate) fn results<R: Send>(count: usize, task: &(dyn Fn(usize) -> R + Sync)) -> Vec<R> {
    let mut results: Vec<Option<R>> = (0..count).map(|_| None).collect();
    chunks(&mut results, 1, &|i, place| place.fill_with(|| Some(task(i))));
    results.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_is_visited_once() {
        for len in [0, 1, 2, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 5] {
            let numbers: Vec<usize> = (0..len).collect();
            for size in [1, 7, CHUNK, len.max(1)] {
                let mut elements = vec![0; len];
                chunks(&mut elements, size, &|i, out| {
                    out.iter_mut().enumerate().for_each(|(k, element)| *element += i * size + k);
                });
                assert_eq!(elements, numbers, "chunks of {size} of {len}");
                rows(&mut elements, size, &|i, out| {
                    out.iter_mut().enumerate().for_each(|(k, element)| *element -= i * size + k);
                });
                assert!(elements.iter().all(|&element| element == 0), "rows of {size} of {len}");
            }
            let mut extended = vec![7; 3];
            extend(&mut extended, &numbers);
            assert!(extended[..3] == [7; 3] && extended[3..] == numbers, "extended by {len}");
            let own = filled(len, &|start, out| out.iter_mut().enumerate().for_each(|(i, r)| *r = start + i));
            assert_eq!(own, numbers, "filled {len}");
        }
    }

    #[test]
    fn results_and_items_keep_their_order() {
        assert_eq!(results(100, &|i| vec![i; i % 3]), (0..100).map(|i| vec![i; i % 3]).collect::<Vec<_>>());
        let places: Vec<Mutex<usize>> = (0..100).map(|_| Mutex::new(0)).collect();
        consume((0..100).map(|i| (i, i * i)).collect(), &|(i, square)| *places[i].lock().unwrap() += square);
        assert!(places.into_iter().enumerate().all(|(i, square)| square.into_inner().unwrap() == i * i));
    }

    #[test]
    fn a_task_may_run_tasks() {
        let sums = results(20, &|i| results(20, &|k| i * k).iter().sum::<usize>());
        assert_eq!(sums, (0..20).map(|i| i * 190).collect::<Vec<_>>());
    }
}
