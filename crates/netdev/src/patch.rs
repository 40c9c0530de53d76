//! `patch` ports: translation follows a patch, so it has no device.

use std::io;

use dpif::PatchPort;

use crate::open::{OpenedPort, Opener, Opening};

impl Opener for PatchPort {
    fn open(&self, opening: &Opening<'_>) -> io::Result<OpenedPort> {
        let name = &opening.spec.name;
        Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{name}: a patch is no port of a datapath")))
    }
}
