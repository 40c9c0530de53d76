//! Entry points for fuzzing: any bytes in, no panic out.

use crate::probe;

/// Any bytes as a received frame.
pub fn probe(bytes: &[u8]) {
    if let Some(probe) = probe::parse(bytes) {
        assert_eq!(probe::parse(&probe::encode(&probe, 0)), Some(probe));
    }
}

/// Any text as a saved run.
pub fn saved_run(bytes: &[u8]) {
    if let Ok(run) = crate::model::Run::from_text(&String::from_utf8_lossy(bytes)) {
        let again = crate::model::Run::from_text(&run.to_text());
        assert!(again.is_ok_and(|again| again.to_text() == run.to_text()));
    }
}
