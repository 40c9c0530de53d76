//! Texts of a session: `bfd/show`, and the column `bfd_status` of the table `Interface`.

use super::session::Session;
use std::collections::BTreeMap;

impl Session {
    /// The lines of `bfd/show` on the session, without its name.
    pub fn show(&mut self, now_ms: u64) -> String {
        let forwarding = self.forwarding(now_ms);
        let from_now = |time_ms: u64| format!("now {:+}ms", i128::from(time_ms) - i128::from(now_ms));
        let remote = &self.remote;
        let rows = [
            ("Forwarding", forwarding.to_string()),
            ("Detect Multiplier", self.config.multiplier.to_string()),
            ("Concatenated Path Down", self.config.cpath_down.to_string()),
            ("TX Interval", format!("Approx {}ms", self.tx_interval_ms())),
            ("RX Interval", format!("Approx {}ms", self.rx_interval_ms())),
            ("Detect Time", from_now(self.detect_ms)),
            ("Next TX Time", from_now(self.next_tx_ms)),
            ("Last TX Time", from_now(self.last_tx_ms) + "\n"),
            ("Local Flags", self.flags.to_string()),
            ("Local Session State", self.state.to_string()),
            ("Local Diagnostic", self.diagnostic.to_string()),
            ("Local Discriminator", format!("{:#x}", self.identity.discriminator)),
            ("Local Minimum TX Interval", format!("{}ms", self.min_tx_ms())),
            ("Local Minimum RX Interval", format!("{}ms\n", self.current.rx_ms)),
            ("Remote Flags", remote.flags.to_string()),
            ("Remote Session State", remote.state.to_string()),
            ("Remote Diagnostic", remote.diagnostic.to_string()),
            ("Remote Discriminator", format!("{:#x}", remote.discriminator)),
            ("Remote Minimum TX Interval", format!("{}ms", remote.min_tx_ms)),
            ("Remote Minimum RX Interval", format!("{}ms", remote.min_rx_ms)),
            ("Remote Detect Multiplier", self.remote_multiplier.to_string()),
        ];
        rows.iter().map(|(name, value)| format!("  {name}: {value}\n")).collect()
    }

    /// The pairs of `bfd_status`; an interface without a session has none.
    pub fn status(&mut self, now_ms: u64) -> BTreeMap<String, String> {
        let pairs = [
            ("forwarding", self.forwarding(now_ms).to_string()),
            ("state", self.state.to_string()),
            ("diagnostic", self.diagnostic.to_string()),
            ("flap_count", self.flap_count.to_string()),
            ("remote_state", self.remote.state.to_string()),
            ("remote_diagnostic", self.remote.diagnostic.to_string()),
        ];
        pairs.into_iter().map(|(key, value)| (key.to_string(), value)).collect()
    }
}
