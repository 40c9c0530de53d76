//! [`OptionReader`]: typed access to the options of one interface, with errors for its row.

use super::interface_type::OptionNotice;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// The options of an interface.
pub(crate) struct OptionReader<'a> {
    /// Its name.
    pub(super) interface: &'a str,
    /// The type in its row.
    pub(super) type_name: &'a str,
    /// By key.
    pub(super) map: &'a BTreeMap<String, String>,
    /// Receive queues, at least 1.
    pub(super) n_rxq: u32,
    /// Options without effect so far.
    pub(super) notices: Vec<OptionNotice>,
}

impl<'a> OptionReader<'a> {
    /// Parses the option that is checked for every type.
    ///
    /// # Errors
    /// It is invalid.
    pub(super) fn new(
        interface: &'a str,
        type_name: &'a str,
        map: &'a BTreeMap<String, String>,
    ) -> Result<OptionReader<'a>, String> {
        let mut reader = OptionReader { interface, type_name, map, n_rxq: 1, notices: Vec::new() };
        if let Some(text) = reader.get("n_rxq") {
            let n_rxq: u32 = text.trim().parse().map_err(|_| {
                format!(
                    "could not set configuration of {interface} (options:n_rxq={text:?} is not a number of receive queues)"
                )
            })?;
            reader.n_rxq = n_rxq.max(1);
        }
        Ok(reader)
    }

    pub(super) fn get(&self, key: &str) -> Option<&'a str> {
        self.map.get(key).map(String::as_str)
    }

    /// The error of a device that cannot be opened.
    pub(super) fn bad(&self, why: impl fmt::Display) -> String {
        format!("could not open network device {} ({why})", self.interface)
    }

    pub(super) fn switch(&self, key: &str, default: bool) -> Result<bool, String> {
        let Some(text) = self.get(key) else { return Ok(default) };
        text.parse().map_err(|_| self.bad(format_args!("option {key}: {text}: neither true nor false")))
    }

    pub(super) fn number(&self, key: &str) -> Result<Option<u32>, String> {
        let Some(text) = self.get(key) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| self.bad(format_args!("option {key}: {text}: not a number")))
    }

    pub(super) fn file(&self, key: &str) -> Option<PathBuf> {
        self.get(key).map(PathBuf::from)
    }

    /// Reports an option without effect, of which OVS warns.
    pub(super) fn warn(&mut self, key: &str, message: String) {
        self.notices.push(OptionNotice { key: key.to_string(), message });
    }
}
