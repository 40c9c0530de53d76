//! Capture files.

mod format;
mod writer;

pub(crate) use writer::Writer;
