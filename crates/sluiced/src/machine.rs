//! `Open_vSwitch.statistics`: load of the machine and of the daemons in the run directory (`other_config:enable-statistics`).
//!
//! Read in the main loop when statistics are written: some files of proc(5), and a system call per file system on a
//! device.

use std::collections::BTreeMap;
use std::path::Path;
use sys::machine::{FileSystem, Memory, Process};

/// Maximum pid files examined.
const PID_FILES_MAX: usize = 64;

/// Logs the processors by NUMA node, in the words of OVS: the simulated ones, if any.
pub(super) fn log_processors(simulated: &[u16]) {
    let mut nodes: BTreeMap<u32, usize> = BTreeMap::new();
    simulated.iter().for_each(|node| *nodes.entry(u32::from(*node)).or_default() += 1);
    if nodes.is_empty() {
        nodes = sys::machine::numa_nodes();
    }
    for (node, cpus) in &nodes {
        log::info!(target: "ovs_numa", "Discovered {cpus} CPU cores on NUMA node {node}");
    }
    let cpus: usize = nodes.values().sum();
    log::info!(target: "ovs_numa", "Discovered {} NUMA nodes and {cpus} CPU cores", nodes.len());
}

/// Type and version of this system: as given; else of `system-type.conf` and `system-version.conf`, which ovs-ctl(8) reads;
/// else of os-release(5).
pub(super) fn system(given: &(Option<String>, Option<String>), config_dir: &Path) -> (String, String) {
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let value = |given: &Option<String>, file: &str, key: &str| {
        let of_file = || Some(std::fs::read_to_string(config_dir.join(file)).ok()?.trim().to_string());
        let of_release = || {
            let line = release.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix('='))?;
            Some(line.trim_matches('"').to_string())
        };
        given.clone().or_else(of_file).or_else(of_release).unwrap_or("unknown".to_string())
    };
    (value(&given.0, "system-type.conf", "ID"), value(&given.1, "system-version.conf", "VERSION_ID"))
}

/// The column.
pub(super) fn statistics(run_dir: &Path) -> BTreeMap<String, String> {
    let mut all = BTreeMap::from([("cpu".to_string(), sys::machine::processors().to_string())]);
    let mut put = |key: &str, value: Option<String>| {
        all.extend(value.filter(|text| !text.is_empty()).map(|text| (key.to_string(), text)));
    };
    put("load_average", sys::machine::load_average().map(|load| load.join(",")));
    put("memory", sys::machine::memory().map(memory));
    put("file_systems", Some(file_systems(&sys::machine::file_systems())));
    for (name, pid) in daemons(run_dir) {
        put(&format!("process_{name}"), sys::machine::process(pid).map(|own| process(pid, own)));
    }
    all
}

fn memory(m: Memory) -> String {
    format!("{},{},{},{},{}", m.total_kb, m.used_kb, m.cache_kb, m.swap_kb, m.swap_used_kb)
}

fn file_systems(all: &[FileSystem]) -> String {
    let one =
        |f: &FileSystem| format!("{},{},{}", f.mount_point.replace([' ', ','], "_"), f.total_kb, f.used_kb);
    all.iter().map(one).collect::<Vec<_>>().join(" ")
}

/// With a monitor the fifth number is the monitor's time.
fn process(pid: u32, own: Process) -> String {
    let title = std::fs::read(format!("/proc/{}/cmdline", own.parent)).unwrap_or_default();
    let crashes = crashes(&String::from_utf8_lossy(&title), pid);
    let monitor = crashes.and_then(|_| sys::machine::process(own.parent));
    let booted_ms = monitor.map_or(own.running_ms, |m| m.running_ms);
    format!(
        "{},{},{},{},{booted_ms},{},{}",
        own.virtual_kb,
        own.resident_kb,
        own.cpu_ms,
        crashes.unwrap_or(0),
        own.running_ms,
        own.core
    )
}

/// Number of a daemon's crashes, from the title of its parent; `None` if that is no monitor.
fn crashes(title: &str, pid: u32) -> Option<u32> {
    let (_, state) = title.split_once(&format!("monitoring pid {pid} ("))?;
    Some(state.split_once(" crashes").and_then(|(count, _)| count.parse().ok()).unwrap_or(0))
}

/// Running daemons, by the names of their pid files.
fn daemons(run_dir: &Path) -> Vec<(String, u32)> {
    let Ok(entries) = std::fs::read_dir(run_dir) else { return Vec::new() };
    let running = |entry: std::fs::DirEntry| {
        let name = entry.file_name().to_str()?.strip_suffix(".pid")?.to_string();
        Some((name, sys::pidfile::running(&entry.path()).ok()??))
    };
    let mut all: Vec<_> = entries.flatten().filter_map(running).take(PID_FILES_MAX).collect();
    all.sort();
    all
}

#[cfg(test)]
mod tests;
