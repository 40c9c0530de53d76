//! Fuzz targets of `sluice appctl` and `sluice dpctl`, of the words that a shell completes, and of the daemon's status.

use std::time::Duration;

use super::{DPCTL, Format, Request, names_of, parse, shown};
use crate::completion::{Source, candidates};
use crate::fuzz::{text, words};
use crate::status_model::StatusModel;
use crate::top::model::View;

/// A command line, and an answer of a daemon.
pub fn appctl_words(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    let line = words(text);
    for prefix in ["", DPCTL] {
        if let Ok(Request::Call { command, args, .. }) = parse(&line, prefix) {
            assert!(command.starts_with(prefix) && args.len() < line.len(), "{line:?}");
        }
    }
    assert!(names_of(text).iter().all(|name| !name.is_empty()));
    let Ok(value) = serde_json::from_str(text) else { return };
    let answer = shown(value, Format { json: true, pretty: true });
    assert!(answer.ends_with('\n'));
}

/// A switch without ports.
struct Nothing;

impl Source for Nothing {
    fn vsctl(&self, _: &[&str]) -> Vec<String> {
        vec!["br0".to_string()]
    }

    fn daemon(&self) -> Vec<String> {
        vec!["dpctl/show".to_string(), "version".to_string()]
    }
}

/// A line to complete: each candidate continues its last word.
pub fn completed_words(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    let line = words(text);
    let last = line.last().map_or("", String::as_str);
    assert!(candidates(&line, &Nothing).iter().all(|word| word.starts_with(last)), "{line:?}");
}

/// Two replies to `sluice/status`, a line each, and their view in `sluice top`.
pub fn status_reply(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    let mut readings = text.lines().filter_map(|line| {
        let value = serde_json::from_str(line).ok()?;
        StatusModel::from_json(&value).ok()
    });
    let Some(first) = readings.next() else { return };
    let _shown = View::first(&first);
    if let Some(second) = readings.next() {
        let _shown = View::between(&first, &second, Duration::from_secs(1));
    }
}
