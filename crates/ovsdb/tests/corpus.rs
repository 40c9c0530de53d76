//! Replays the corpus of the fuzz targets, and truncated and single-byte variants of each file.

use std::fs;
use std::path::Path;

use ovsdb::fuzz::{fuzz_client, fuzz_jsonrpc, fuzz_log, fuzz_schema, fuzz_transact};

fn replay(name: &str, target: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let mut files: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{folder:?} is empty");
    for file in files {
        let bytes = fs::read(&file).unwrap();
        target(&bytes);
        let step = (bytes.len() / 40).max(1);
        for at in (0..bytes.len()).step_by(step) {
            target(&bytes[..at]);
            let mut changed = bytes.clone();
            changed[at] ^= 0x11;
            target(&changed);
        }
    }
}

#[test]
fn jsonrpc() {
    replay("jsonrpc", fuzz_jsonrpc);
}

#[test]
fn client() {
    replay("client", fuzz_client);
}

#[test]
fn log() {
    replay("log", fuzz_log);
}

#[test]
fn transact() {
    replay("transact", fuzz_transact);
}

#[test]
fn schema() {
    replay("schema", fuzz_schema);
}
