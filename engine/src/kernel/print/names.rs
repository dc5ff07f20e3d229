//! Unambiguous names of parameters, buffers and variables.

use crate::kernel::ir::{BufId, Kernel, ParamId, VarId};
use std::collections::BTreeMap;

/// The names of one kernel.
pub(super) struct Names {
    params: Vec<String>,
    buffers: Vec<String>,
    vars: Vec<String>,
}

impl Names {
    pub(super) fn new(kernel: &Kernel) -> Self {
        let mut uses = BTreeMap::<&str, usize>::new();
        // A pointer parameter and its buffer are one thing: it counts as the buffer.
        let params = kernel.params.values().filter(|p| p.dtype.is_some()).map(|p| p.name.as_str());
        let buffers = kernel.buffers.values().map(|b| b.name.as_str());
        let vars = kernel.vars.values().map(|v| v.name.as_str());
        for name in params.chain(buffers).chain(vars) {
            *uses.entry(name).or_default() += 1;
        }
        let unique = |name: &str, id: &dyn std::fmt::Display| match uses.get(name) {
            Some(1) if !name.is_empty() => name.to_owned(),
            _ => format!("{}.{id}", if name.is_empty() { "_" } else { name }),
        };
        Self {
            params: kernel.params.iter().map(|(id, p)| unique(&p.name, &id)).collect(),
            buffers: kernel.buffers.iter().map(|(id, b)| unique(&b.name, &id)).collect(),
            vars: kernel.vars.iter().map(|(id, v)| unique(&v.name, &id)).collect(),
        }
    }

    // Ids that a broken kernel does not declare print as themselves: the
    // verifier prints statements of such kernels.
    pub(super) fn param(&self, id: ParamId) -> String {
        lookup(&self.params, &id)
    }
    pub(super) fn buffer(&self, id: BufId) -> String {
        lookup(&self.buffers, &id)
    }
    pub(super) fn var(&self, id: VarId) -> String {
        lookup(&self.vars, &id)
    }
}

fn lookup<K: crate::util::EntityId + std::fmt::Display>(names: &[String], id: &K) -> String {
    names.get(id.index()).cloned().unwrap_or_else(|| format!("undeclared.{id}"))
}
