//! `dpctl/add-flows`, `mod-flows` and `del-flows` with a file: datapath flows, one a line.
//!
//! Each line is done by itself, in order; faults of all lines are the error. A flow without a ufid is found by key and
//! mask in one dump of all flows, made for the first line that needs it: the cost is that of the flows of the datapath
//! and of the lines, not their product. A flow to modify that has another mask costs a lookup for each mask.

use super::datapath::{Names, datapath, flows_of};
use super::flows::{NOTHING_TO_DELETE, Name, actions_of, why};
use super::{Optional, Reply, Rows, Word, command};
use crate::control_plane::ControlPlane;
use crate::instances::Instance;
use dpif::{DpAction, DpifError, DpifOp, FlowPut, OpResult, PmdId, PutMode};
use flow::{FlowKey, KeyMask, Ufid};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::sync::Arc;

/// The commands of this module.
pub(super) const ROWS: Rows = &[
    &command(
        "dpctl/add-flows",
        (Optional(Word("dp")), Word("file")),
        "install the flows of a file in a datapath",
        add,
    ),
    &command(
        "dpctl/mod-flows",
        (Optional(Word("dp")), Word("file")),
        "change the flows that a file lists",
        modify,
    ),
];

/// Maximum size of a file. The main loop waits for the whole file.
const FILE_MAX_BYTES: u64 = 16 << 20;
/// Operations of one request to a forwarding thread.
const OPERATIONS: usize = 256;
/// Maximum number of reported faults.
const FAULTS_MAX: usize = 100;

/// Operation on the flow of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Change {
    Add,
    Modify,
    Delete,
}

/// A line: the change, the flow, and its actions.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line<'t> {
    change: Change,
    pub(super) flow: &'t str,
    pub(super) actions: &'t str,
}

/// A line without comment; `None` if it is empty. An error for a flow without actions that needs them.
pub(super) fn line(text: &str, default: Change) -> Option<Result<Line<'_>, ()>> {
    let text = text.split('#').next().unwrap_or_default().trim();
    if text.is_empty() {
        return None;
    }
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let (change, text) = match word {
        "add" => (Change::Add, rest),
        "modify" => (Change::Modify, rest),
        "delete" => (Change::Delete, rest),
        _ => (default, text),
    };
    let (flow, actions) = text.trim().split_once(char::is_whitespace).unwrap_or((text.trim(), ""));
    let complete = !flow.is_empty() && (change == Change::Delete || !actions.is_empty());
    Some(complete.then_some(Line { change, flow, actions: actions.trim() }).ok_or(()))
}

/// Key and mask of a flow, equal for equal flows.
fn normal(key: &FlowKey, mask: &KeyMask) -> (FlowKey, KeyMask) {
    (key.masked(mask), *mask)
}

/// Flows with their threads, by key and mask.
#[derive(Default)]
struct Known {
    flows: HashMap<(FlowKey, KeyMask), Vec<(PmdId, Ufid)>>,
    masks: HashSet<KeyMask>,
}

impl Known {
    fn dump(instance: &Instance, pmds: &[PmdId]) -> Result<Known, String> {
        let mut known = Known::default();
        for pmd in pmds {
            for f in flows_of(instance, *pmd)? {
                known.entry(&f.key, &f.mask).push((*pmd, f.ufid));
            }
        }
        Ok(known)
    }

    fn entry(&mut self, key: &FlowKey, mask: &KeyMask) -> &mut Vec<(PmdId, Ufid)> {
        self.masks.insert(*mask);
        self.flows.entry(normal(key, mask)).or_default()
    }

    fn named(&self, key: &FlowKey, mask: &KeyMask) -> &[(PmdId, Ufid)] {
        self.flows.get(&normal(key, mask)).map_or(&[], Vec::as_slice)
    }

    /// The flows that a packet of this key meets.
    fn met(&self, key: &FlowKey) -> Vec<(PmdId, Ufid)> {
        self.masks.iter().flat_map(|mask| self.named(key, mask)).copied().collect()
    }
}

/// Carries out lines.
struct Runner<'a> {
    instance: &'a Instance,
    names: Names,
    pmds: Vec<PmdId>,
    /// Names and threads of flows, by key and mask; made when first needed.
    known: Option<Known>,
    /// Operations not yet sent, by thread.
    waiting: Vec<(PmdId, Vec<DpifOp>)>,
    faults: Vec<String>,
    left_out: usize,
}

impl<'a> Runner<'a> {
    fn new(instance: &'a Instance) -> Runner<'a> {
        let pmds = instance.datapath.pmds();
        let waiting = pmds.iter().map(|pmd| (*pmd, Vec::new())).collect();
        let names = Names::of(instance);
        Runner { instance, names, pmds, known: None, waiting, faults: Vec::new(), left_out: 0 }
    }

    fn fault(&mut self, text: String) {
        match self.faults.len() < FAULTS_MAX {
            true => self.faults.push(text),
            false => self.left_out += 1,
        }
    }

    fn queue(&mut self, pmd: PmdId, op: DpifOp) {
        if let Some((_, ops)) = self.waiting.iter_mut().find(|(of, _)| *of == pmd) {
            ops.push(op);
        }
    }

    /// Sends the waiting operations and reads their results.
    fn flush(&mut self) -> Result<(), String> {
        for n in 0..self.waiting.len() {
            let (pmd, ops) = &mut self.waiting[n];
            if ops.is_empty() {
                continue;
            }
            let (pmd, ops) = (*pmd, std::mem::take(ops));
            let deletes: Vec<bool> = ops.iter().map(|op| matches!(op, DpifOp::FlowDel(_))).collect();
            let results = self.instance.ask(pmd, ops)?;
            for (result, deletes) in results.iter().zip(deletes) {
                match result {
                    OpResult::Failed(DpifError::NotFound(_)) if deletes => {
                        self.fault(NOTHING_TO_DELETE.to_string());
                    }
                    OpResult::Failed(e) if deletes => self.fault(format!("deleting flow ({})", why(e))),
                    OpResult::Failed(e) => self.fault(format!("updating flow table ({})", why(e))),
                    OpResult::Done
                    | OpResult::Flow(_)
                    | OpResult::Dump(..)
                    | OpResult::Counters(..)
                    | OpResult::Stats(_) => {}
                }
            }
        }
        Ok(())
    }

    /// Threads and ufids of a flow to change; see [`Name::find_to_modify`].
    fn find(&mut self, name: &Name, change: Change) -> Result<Vec<(PmdId, Ufid)>, String> {
        if let Some(ufid) = name.ufid {
            return Ok(self.pmds.iter().map(|pmd| (*pmd, ufid)).collect());
        }
        let Some(key) = &name.key else { return Ok(Vec::new()) };
        if self.known.is_none() {
            // Flows of lines before must be there.
            self.flush()?;
            self.known = Some(Known::dump(self.instance, &self.pmds)?);
        }
        let Some(known) = &self.known else { return Ok(Vec::new()) };
        match known.named(&key.0, &key.1) {
            [] if change == Change::Modify => Ok(known.met(&key.0)),
            named => Ok(named.to_vec()),
        }
    }

    fn run(&mut self, line: &Line<'_>) -> Result<(), String> {
        let name = Name::parse(line.flow, &self.names)?;
        match line.change {
            Change::Add => {
                let actions = actions_of(line.actions, &self.names)?;
                self.add(&name, &actions)
            }
            Change::Modify => {
                let actions = actions_of(line.actions, &self.names)?;
                let found = self.find(&name, line.change)?;
                if found.is_empty() {
                    return Err("updating flow table (No such file or directory)".to_string());
                }
                let (key, mask) = name.key.map(|key| *key).unwrap_or_default();
                for (pmd, ufid) in found {
                    let put = FlowPut { ufid, key, mask, actions: actions.clone(), mode: PutMode::Modify };
                    self.queue(pmd, DpifOp::FlowPut(Box::new(put)));
                }
                Ok(())
            }
            Change::Delete => {
                let found = self.find(&name, line.change)?;
                if found.is_empty() {
                    return Err(NOTHING_TO_DELETE.to_string());
                }
                if let (Some(known), Some(key)) = (&mut self.known, &name.key) {
                    known.flows.remove(&normal(&key.0, &key.1));
                }
                found.into_iter().for_each(|(pmd, ufid)| self.queue(pmd, DpifOp::FlowDel(ufid)));
                Ok(())
            }
        }
    }

    /// Adds a flow to all threads.
    fn add(&mut self, name: &Name, actions: &Arc<[DpAction]>) -> Result<(), String> {
        let (key, mask) = name.to_add(self.instance)?;
        let ufid = match name.ufid {
            Some(ufid) => ufid,
            None => Ufid(sys::random::u128().map_err(|e| e.to_string())?),
        };
        if let Some(known) = &mut self.known {
            let flows = known.entry(&key, &mask);
            if flows.is_empty() {
                flows.extend(self.pmds.iter().map(|pmd| (*pmd, ufid)));
            }
        }
        for pmd in self.pmds.clone() {
            let put = FlowPut { ufid, key, mask, actions: actions.clone(), mode: PutMode::Create };
            self.queue(pmd, DpifOp::FlowPut(Box::new(put)));
        }
        Ok(())
    }

    /// All lines of a file.
    fn file(&mut self, path: &str, default: Change) -> Result<(), String> {
        let failed = |e: std::io::Error| format!("Opening file \"{path}\" failed ({})", sys::os_text(&e));
        if path == "-" {
            return Err("Opening file \"-\" failed (the daemon has no standard input)".to_string());
        }
        let file = File::open(path).map_err(failed)?;
        let meta = file.metadata().map_err(failed)?;
        // A device or pipe could block the plane.
        if !meta.is_file() || meta.len() > FILE_MAX_BYTES {
            return Err(format!("Opening file \"{path}\" failed (not a file of at most 16 MiB)"));
        }
        for (n, text) in BufReader::new(file.take(FILE_MAX_BYTES)).lines().enumerate() {
            let text = text.map_err(failed)?;
            match line(&text, default) {
                None => {}
                Some(Err(())) => {
                    self.flush()?;
                    self.fault(format!("Failed parsing line number {}, skipped!", n + 1));
                }
                Some(Ok(line)) => {
                    if let Err(e) = self.run(&line) {
                        // In the order of the lines.
                        self.flush()?;
                        self.fault(e);
                    }
                }
            }
            if self.waiting.iter().any(|(_, ops)| ops.len() >= OPERATIONS) {
                self.flush()?;
            }
        }
        self.flush()
    }
}

/// The name of a datapath, and a file.
type Source<'a> = (Option<&'a str>, &'a str);

fn run(plane: &ControlPlane, (name, path): Source<'_>, default: Change) -> Reply {
    let run = || {
        let mut runner = Runner::new(datapath(&plane.switch, name)?);
        runner.file(path, default)?;
        if runner.left_out > 0 {
            runner.faults.push(format!("{} more faults", runner.left_out));
        }
        // Each in the form of a single one.
        let faults = runner.faults.join("\novs-vswitchd: ");
        if faults.is_empty() { Ok(String::new()) } else { Err(faults) }
    };
    Reply::from(run())
}

/// `[DP] FILE`
fn add(plane: &mut ControlPlane, source: Source<'_>) -> Reply {
    run(plane, source, Change::Add)
}

/// `[DP] FILE`
fn modify(plane: &mut ControlPlane, source: Source<'_>) -> Reply {
    run(plane, source, Change::Modify)
}

/// `[DP] FILE`
pub(super) fn delete(plane: &mut ControlPlane, source: Source<'_>) -> Reply {
    run(plane, source, Change::Delete)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_a_change_a_flow_and_actions() {
        let ok = |change, flow, actions| Some(Ok(Line { change, flow, actions }));
        for (text, default, expected) in [
            ("", Change::Add, None),
            ("  # nothing", Change::Add, None),
            ("in_port(1) 2", Change::Add, ok(Change::Add, "in_port(1)", "2")),
            ("  in_port(1)   2,3 # both", Change::Modify, ok(Change::Modify, "in_port(1)", "2,3")),
            ("delete in_port(1)", Change::Add, ok(Change::Delete, "in_port(1)", "")),
            ("modify in_port(1) drop", Change::Delete, ok(Change::Modify, "in_port(1)", "drop")),
            ("add\tufid:1,in_port(1)\t3", Change::Delete, ok(Change::Add, "ufid:1,in_port(1)", "3")),
            ("in_port(1)", Change::Delete, ok(Change::Delete, "in_port(1)", "")),
            ("in_port(1)", Change::Add, Some(Err(()))),
            ("add", Change::Add, Some(Err(()))),
        ] {
            assert_eq!(line(text, default), expected, "{text}");
        }
    }
}
