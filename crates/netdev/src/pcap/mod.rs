//! `pcap` ports: received frames come from a capture file, sent ones go into another. For measurements
//! without a network, and for replaying recorded traffic.
//!
//! A file is replayed once, at the reader's speed, or for ever (`infinite_rx`): then the whole file is in
//! memory, up to [`MAX_PRELOADED_BYTES`], and a frame costs one copy. The times of the records are ignored.
//! Sent frames are written with checksums filled in and large segments split; opening the port truncates the
//! file.

mod format;
mod reader;
mod replay;
#[cfg(test)]
mod tests;
mod writer;

use std::fs::File;
use std::io::{self, BufReader};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use dpif::PcapPort;
use packet::headers::ETH_HEADER_BYTES;
use packet::{BURST_MAX_PACKETS, PacketBatch, PacketPool};

use crate::eventfd::EventFd;
use crate::finish_offloads::finish_offloads;
use crate::open::{OpenedPort, Opener, Opening};
use crate::port::{Port, PortDevice, RxCounters, RxQueue, TxDrop, TxQueue, TxReport, not_created};
use reader::Frames;
use writer::wrap;

pub use format::FormatError;
pub use replay::MAX_PRELOADED_BYTES;
pub(crate) use writer::Writer;

const READ_BUFFER_BYTES: usize = 256 << 10;

impl Opener for PcapPort {
    fn open(&self, opening: &Opening<'_>) -> io::Result<OpenedPort> {
        Port::open_pcap(&opening.spec.name, self).map(OpenedPort::bare)
    }
}

impl Port {
    /// Creates a port of capture files (see [`crate::pcap`]). Any name is valid.
    pub fn open_pcap(name: &str, options: &PcapPort) -> io::Result<Port> {
        let (rx, file) = open(name, options)?;
        Ok(Port::new(name, 0, rx, PcapDevice(file)))
    }
}

struct PcapDevice(TxFile);

impl PortDevice for PcapDevice {
    fn open_tx(&self) -> io::Result<Box<dyn TxQueue>> {
        Ok(Box::new(PcapTx(self.0.clone())))
    }

    not_created!();
}

/// The file that all transmit queues of a port write to.
type TxFile = Option<Arc<Mutex<Writer>>>;

/// Opens both files: returns the receive queues (one or none), and the output.
fn open(name: &str, options: &PcapPort) -> io::Result<(Vec<Box<dyn RxQueue>>, TxFile)> {
    let bad =
        |what: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, format!("pcap port {name}: {what}")));
    let rx: Vec<Box<dyn RxQueue>> = match &options.rx_pcap {
        Some(path) if options.infinite_rx => vec![Box::new(replay::Replay::load(path)?)],
        Some(path) => vec![Box::new(PcapRx::open(path)?)],
        None if options.infinite_rx => return bad("infinite_rx needs rx_pcap=FILE"),
        None if options.tx_pcap.is_none() => return bad("it needs rx_pcap=FILE or tx_pcap=FILE"),
        None => Vec::new(),
    };
    if options.rx_pcap.is_some() && options.rx_pcap == options.tx_pcap {
        return bad("rx_pcap and tx_pcap are the same file, which would be emptied");
    }
    let tx = options.tx_pcap.as_deref().map(Writer::replace).transpose()?;
    Ok((rx, tx.map(|w| Arc::new(Mutex::new(w)))))
}

/// Opens a regular file for its frames. Reading other file types could block.
fn open_frames(path: &Path) -> io::Result<Frames<BufReader<File>>> {
    // Checked before opening: opening a pipe waits for its writer.
    let kind = std::fs::metadata(path).map_err(|e| wrap(path, "cannot be opened", e))?;
    if !kind.is_file() {
        let why = io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file");
        return Err(wrap(path, "cannot be played", why));
    }
    let file = File::open(path).map_err(|e| wrap(path, "cannot be opened", e))?;
    Frames::new(BufReader::with_capacity(READ_BUFFER_BYTES, file))
        .map_err(|e| wrap(path, "cannot be played", e))
}

/// A receive queue that reads its file on demand.
struct PcapRx {
    path: PathBuf,
    frames: Frames<BufReader<File>>,
    /// Raised until the end or error of the file was reported.
    ready: EventFd,
    ended: bool,
    /// Error to report at the next call, because this one returned frames.
    failed: Option<io::Error>,
    malformed: u64,
}

impl PcapRx {
    fn open(path: &Path) -> io::Result<PcapRx> {
        let frames = open_frames(path)?;
        let ready = EventFd::new()?;
        ready.raise();
        Ok(PcapRx { path: path.to_owned(), frames, ready, ended: false, failed: None, malformed: 0 })
    }

    /// Appends the next frame to `batch`, if valid; `false` at the end.
    fn recv_one(&mut self, pool: &mut PacketPool, batch: &mut PacketBatch) -> io::Result<bool> {
        let Some(record) = self.frames.next()? else { return Ok(false) };
        let mut p = pool.alloc(record.stored_bytes);
        p.set_len(record.stored_bytes);
        let read = self.frames.read(p.data_mut());
        if read.is_err() || record.frame_bytes < ETH_HEADER_BYTES {
            self.malformed += u64::from(read.is_ok());
            pool.free(p);
            return read.map(|()| true);
        }
        p.set_len(record.frame_bytes);
        batch.push(p);
        Ok(true)
    }
}

impl RxQueue for PcapRx {
    fn fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }

    fn recv(
        &mut self,
        pool: &mut PacketPool,
        batch: &mut PacketBatch,
        max_packets: usize,
    ) -> io::Result<usize> {
        let before = batch.len();
        let most = max_packets.min(BURST_MAX_PACKETS);
        while !self.ended && batch.len() - before < most {
            match self.recv_one(pool, batch) {
                Ok(more) => self.ended = !more,
                Err(e) => {
                    self.ended = true;
                    self.failed = Some(wrap(&self.path, "cannot be played on", e));
                }
            }
        }
        let got = batch.len() - before;
        if got == 0
            && let Some(e) = self.failed.take()
        {
            self.ready.lower();
            return Err(e);
        }
        if self.ended && self.failed.is_none() {
            self.ready.lower();
        }
        Ok(got)
    }

    fn counters(&self) -> RxCounters {
        RxCounters { malformed: self.malformed, ..RxCounters::default() }
    }
}

/// A transmit queue.
struct PcapTx(TxFile);

impl TxQueue for PcapTx {
    fn send(&mut self, batch: &mut PacketBatch, pool: &mut PacketPool) -> TxReport {
        let mut report = TxReport::default();
        finish_offloads(batch, pool, &mut report);
        let frames = batch.packets();
        let written = match &self.0 {
            Some(file) if !frames.is_empty() => {
                let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
                file.write(frames.iter().map(|p| p.data()))
            }
            _ => Ok(()),
        };
        match written {
            Ok(()) => frames.iter().for_each(|p| report.count_sent(p.len())),
            Err(_) => report.count_drops(TxDrop::Refused, frames.len()),
        }
        batch.free_into(pool);
        report
    }
}
