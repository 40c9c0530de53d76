//! Tunnel ports: datapath actions push and pop the outer headers, so a tunnel has no device.

use std::io;
use std::sync::Arc;

use dpif::TunnelConfig;

use crate::Port;
use crate::open::{OpenedPort, Opener, Opening};

impl Opener for Arc<TunnelConfig> {
    fn open(&self, opening: &Opening<'_>) -> io::Result<OpenedPort> {
        Ok(OpenedPort { inline: true, ..OpenedPort::bare(Port::open_null(&opening.spec.name)) })
    }
}
