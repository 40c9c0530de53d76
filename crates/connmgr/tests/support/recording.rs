//! A datapath that sends nothing: it records executed packets, and its meters. The unit tests of the connection
//! manager include this file, too.

use dpif::{
    Capabilities, ConnectionSink, Connections, CtLimit, CtMatch, CtZone, Datapath, DpifError, DpifOp,
    Execute, MeterConfig, MeterStats, OpBatch, PmdId, PortInfo, PortSpec, PortStats,
};
use flow::DpPort;
use std::collections::BTreeMap;
use std::sync::Mutex;

pub(crate) struct RecordingDatapath {
    /// Executed packets not taken yet.
    pub(crate) executed: Mutex<Vec<Execute>>,
    /// Its meters.
    pub(crate) meters: Mutex<BTreeMap<u32, MeterConfig>>,
    /// It has a connection tracker, without connections.
    pub(crate) tracks: bool,
    port_stats: fn(DpPort) -> Result<PortStats, DpifError>,
}

impl RecordingDatapath {
    /// A datapath whose ports have these counters.
    pub(crate) fn new(port_stats: fn(DpPort) -> Result<PortStats, DpifError>) -> RecordingDatapath {
        RecordingDatapath { executed: Mutex::default(), meters: Mutex::default(), tracks: false, port_stats }
    }
}

impl Datapath for RecordingDatapath {
    fn name(&self) -> &str {
        "recording@test"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { sample_nesting: 0, ..Capabilities::ENOUGH }
    }

    fn port_add(&self, _: &PortSpec) -> Result<DpPort, DpifError> {
        Err(DpifError::Full("this datapath"))
    }

    fn port_del(&self, _: DpPort) -> Result<(), DpifError> {
        Ok(())
    }

    fn ports(&self) -> Vec<PortInfo> {
        Vec::new()
    }

    fn port_stats(&self, port: DpPort) -> Result<PortStats, DpifError> {
        (self.port_stats)(port)
    }

    fn all_port_stats(&self) -> Vec<(DpPort, PortStats)> {
        (0..10).map(DpPort).filter_map(|n| Some((n, (self.port_stats)(n).ok()?))).collect()
    }

    fn connections(&self) -> Option<&dyn Connections> {
        self.tracks.then_some(self)
    }

    fn pmds(&self) -> Vec<PmdId> {
        vec![PmdId::Main]
    }

    fn operate(&self, batch: OpBatch) {
        for op in batch.ops {
            if let DpifOp::Execute(e) = op {
                self.executed.lock().unwrap().push(*e);
            }
        }
    }

    fn meter_set(&self, id: u32, config: &MeterConfig) -> Result<(), DpifError> {
        self.meters.lock().unwrap().insert(id, config.clone());
        Ok(())
    }

    fn meter_stats(&self, _: u32) -> Result<MeterStats, DpifError> {
        Err(DpifError::NotFound("meter"))
    }

    fn meter_del(&self, id: u32) -> Result<(), DpifError> {
        self.meters.lock().unwrap().remove(&id).map(drop).ok_or(DpifError::NotFound("meter"))
    }
}

impl Connections for RecordingDatapath {
    fn list(&self, _: Option<u16>, _: &mut dyn ConnectionSink) -> Result<(), DpifError> {
        Ok(())
    }

    fn flush(&self, _: &CtMatch) -> Result<(), DpifError> {
        Err(DpifError::NotFound("connection"))
    }

    fn limits(&self, _: &[CtZone]) -> Result<Vec<CtLimit>, DpifError> {
        Ok(Vec::new())
    }

    fn set_limits(&self, _: &[(CtZone, u32)]) -> Result<(), DpifError> {
        Ok(())
    }

    fn remove_limits(&self, _: &[CtZone]) -> Result<(), DpifError> {
        Ok(())
    }
}
