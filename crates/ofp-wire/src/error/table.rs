//! The rows of the error table: name, and its numbers by range of versions.
//!
//! Sources: OpenFlow 1.0.1 §5.4.4, 1.3.5 §7.4.4, 1.4 and 1.5 §7.5.4; the ONF extensions for 1.3 (bundles, EXT-230; duplicate
//! instructions, EXT-260; time-outs of multipart requests, EXT-264; masks in set-field, EXT-425; properties, EXT-444); the
//! Nicira extended errors.

use super::{NX_VENDOR, Numbers, ONF_VENDOR};

macro_rules! errors {
    ($($variant:ident $name:literal [$($n:expr),*];)*) => {
        /// A protocol error.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum ErrorKind {
            $(#[doc = concat!("`", $name, "`.")] $variant,)*
        }

        impl ErrorKind {
            /// All errors. If two have one number in a version, decoding returns the first.
            pub const ALL: &'static [ErrorKind] = &[$(ErrorKind::$variant,)*];

            /// The name of Open vSwitch: that of the standard or the extension, but for terms that both replaced.
            pub fn name(self) -> &'static str {
                match self {
                    $(ErrorKind::$variant => $name,)*
                }
            }

            pub(super) fn numbers(self) -> &'static [Numbers] {
                match self {
                    $(ErrorKind::$variant => const { &[$($n),*] },)*
                }
            }
        }
    };
}

const fn of(first: u8, last: u8, ty: u16, code: u16) -> Numbers {
    Numbers { vendor: 0, first, last, ty, code }
}

const fn nx(first: u8, last: u8, ty: u16, code: u16) -> Numbers {
    Numbers { vendor: NX_VENDOR, first, last, ty, code }
}

const fn onf(first: u8, last: u8, ty: u16, code: u16) -> Numbers {
    Numbers { vendor: ONF_VENDOR, first, last, ty, code }
}

errors! {
    HfcIncompatible "OFPHFC_INCOMPATIBLE" [of(1, 6, 0, 0)];
    HfcEperm "OFPHFC_EPERM" [of(1, 6, 0, 1)];
    BrcBadVersion "OFPBRC_BAD_VERSION" [of(1, 6, 1, 0)];
    BrcBadType "OFPBRC_BAD_TYPE" [of(1, 6, 1, 1)];
    BrcBadStat "OFPBRC_BAD_STAT" [of(1, 6, 1, 2)];
    BrcBadExperimenter "OFPBRC_BAD_VENDOR" [of(1, 6, 1, 3)];
    BrcBadExpType "OFPBRC_BAD_SUBTYPE" [of(1, 6, 1, 4)];
    BrcEperm "OFPBRC_EPERM" [of(1, 6, 1, 5)];
    BrcBadLen "OFPBRC_BAD_LEN" [of(1, 6, 1, 6)];
    BrcBufferEmpty "OFPBRC_BUFFER_EMPTY" [of(1, 6, 1, 7)];
    BrcBufferUnknown "OFPBRC_BUFFER_UNKNOWN" [of(1, 6, 1, 8)];
    BrcBadTableId "OFPBRC_BAD_TABLE_ID" [nx(1, 1, 1, 512), of(2, 6, 1, 9)];
    BrcIsSlave "OFPBRC_IS_SECONDARY" [of(1, 2, 1, 5), of(3, 6, 1, 10)];
    BrcBadPort "OFPBRC_BAD_PORT" [nx(1, 2, 1, 514), of(3, 6, 1, 11)];
    BrcBadPacket "OFPBRC_BAD_PACKET" [of(3, 6, 1, 12)];
    BrcMultipartBufferOverflow "OFPBRC_MULTIPART_BUFFER_OVERFLOW" [of(4, 6, 1, 13)];
    BrcMultipartRequestTimeout "OFPBRC_MULTIPART_REQUEST_TIMEOUT" [onf(4, 4, 2640, 0), of(5, 6, 1, 14)];
    BrcPipelineFieldsOnly "OFPBRC_PIPELINE_FIELDS_ONLY" [of(6, 6, 1, 17)];
    NxbrcNxmInvalid "NXBRC_NXM_INVALID" [nx(1, 2, 1, 256), nx(3, 6, 2, 0)];
    NxbrcNxmBadType "NXBRC_NXM_BAD_TYPE" [nx(1, 2, 1, 257), nx(3, 6, 3, 0)];
    NxbrcMustBeZero "NXBRC_MUST_BE_ZERO" [nx(1, 2, 1, 515), nx(3, 6, 4, 0)];
    NxbrcBadReason "NXBRC_BAD_REASON" [nx(1, 2, 1, 516), nx(3, 6, 5, 0)];
    NxbrcFmBadEvent "NXBRC_FM_BAD_EVENT" [nx(1, 2, 1, 520), nx(3, 6, 9, 0)];
    NxbrcUnencodableError "NXBRC_UNENCODABLE_ERROR" [nx(1, 2, 1, 521), nx(3, 6, 10, 0)];
    BacBadType "OFPBAC_BAD_TYPE" [of(1, 6, 2, 0)];
    BacBadLen "OFPBAC_BAD_LEN" [of(1, 6, 2, 1)];
    BacBadExperimenter "OFPBAC_BAD_VENDOR" [of(1, 6, 2, 2)];
    BacBadExpType "OFPBAC_BAD_VENDOR_TYPE" [of(1, 6, 2, 3)];
    BacBadOutPort "OFPBAC_BAD_OUT_PORT" [of(1, 6, 2, 4)];
    BacBadArgument "OFPBAC_BAD_ARGUMENT" [of(1, 6, 2, 5)];
    BacEperm "OFPBAC_EPERM" [of(1, 6, 2, 6)];
    BacTooMany "OFPBAC_TOO_MANY" [of(1, 6, 2, 7)];
    BacBadQueue "OFPBAC_BAD_QUEUE" [of(1, 6, 2, 8)];
    BacBadOutGroup "OFPBAC_BAD_OUT_GROUP" [nx(1, 1, 2, 9), of(2, 6, 2, 9)];
    BacMatchInconsistent "OFPBAC_MATCH_INCONSISTENT" [nx(1, 1, 1, 522), of(2, 6, 2, 10)];
    BacUnsupportedOrder "OFPBAC_UNSUPPORTED_ORDER" [of(2, 6, 2, 11)];
    BacBadTag "OFPBAC_BAD_TAG" [of(2, 6, 2, 12)];
    BacBadSetType "OFPBAC_BAD_SET_TYPE" [nx(1, 2, 1, 523), of(3, 6, 2, 13)];
    BacBadSetLen "OFPBAC_BAD_SET_LEN" [nx(1, 2, 1, 524), of(3, 6, 2, 14)];
    BacBadSetArgument "OFPBAC_BAD_SET_ARGUMENT" [nx(1, 2, 1, 525), of(3, 6, 2, 15)];
    BacBadSetMask "OFPBAC_BAD_SET_MASK" [onf(4, 5, 4250, 0), of(6, 6, 2, 16)];
    NxbacMustBeZero "NXBAC_MUST_BE_ZERO" [nx(1, 2, 2, 256), nx(3, 6, 11, 0)];
    NxbacCtDatapathSupport "NXBAC_CT_DATAPATH_SUPPORT" [nx(1, 2, 1, 265), nx(3, 6, 42, 0)];
    NxbmcCtDatapathSupport "NXBMC_CT_DATAPATH_SUPPORT" [nx(1, 2, 1, 264), nx(3, 6, 43, 0)];
    NxbacBadConjunction "NXBAC_BAD_CONJUNCTION" [nx(1, 2, 2, 526), nx(3, 6, 15, 0)];
    NxbacBadHeaderType "NXBAC_BAD_HEADER_TYPE" [nx(4, 6, 39, 0)];
    NxbacUnknownEdProp "NXBAC_UNKNOWN_ED_PROP" [nx(4, 6, 40, 0)];
    NxbacBadEdProp "NXBAC_BAD_ED_PROP" [nx(4, 6, 41, 0)];
    BicUnknownInst "OFPBIC_UNKNOWN_INST" [of(2, 6, 3, 0)];
    BicUnsupInst "OFPBIC_UNSUP_INST" [nx(1, 1, 2, 257), of(2, 6, 3, 1)];
    BicBadTableId "OFPBIC_BAD_TABLE_ID" [of(2, 6, 3, 2)];
    BicUnsupMetadata "OFPBIC_UNSUP_METADATA" [of(2, 6, 3, 3)];
    BicUnsupMetadataMask "OFPBIC_UNSUP_METADATA_MASK" [of(2, 6, 3, 4)];
    BicBadExperimenter "OFPBIC_BAD_EXPERIMENTER" [of(2, 6, 3, 5)];
    BicBadExpType "OFPBIC_BAD_EXP_TYPE" [of(2, 2, 3, 5), of(3, 6, 3, 6)];
    BicBadLen "OFPBIC_BAD_LEN" [of(3, 6, 3, 7)];
    BicEperm "OFPBIC_EPERM" [of(3, 6, 3, 8)];
    BicDupInst "OFPBIC_DUP_INST" [nx(2, 2, 3, 256), onf(3, 4, 2600, 0), of(5, 6, 3, 9)];
    BmcBadType "OFPBMC_BAD_TYPE" [of(2, 6, 4, 0)];
    BmcBadLen "OFPBMC_BAD_LEN" [of(2, 6, 4, 1)];
    BmcBadTag "OFPBMC_BAD_TAG" [of(2, 6, 4, 2)];
    BmcBadDlAddrMask "OFPBMC_BAD_DL_ADDR_MASK" [of(2, 6, 4, 3)];
    BmcBadNwAddrMask "OFPBMC_BAD_NW_ADDR_MASK" [of(2, 6, 4, 4)];
    BmcBadWildcards "OFPBMC_BAD_WILDCARDS" [nx(1, 1, 1, 262), of(2, 6, 4, 5)];
    BmcBadField "OFPBMC_BAD_FIELD" [nx(1, 1, 0, 263), of(2, 6, 4, 6)];
    BmcBadValue "OFPBMC_BAD_VALUE" [nx(1, 1, 1, 258), of(2, 6, 4, 7)];
    BmcBadMask "OFPBMC_BAD_MASK" [nx(1, 2, 1, 259), of(3, 6, 4, 8)];
    BmcBadPrereq "OFPBMC_BAD_PREREQ" [nx(1, 2, 1, 260), of(3, 6, 4, 9)];
    BmcDupField "OFPBMC_DUP_FIELD" [nx(1, 2, 1, 261), of(3, 6, 4, 10)];
    BmcEperm "OFPBMC_EPERM" [of(3, 6, 4, 11)];
    FmfcUnknown "OFPFMFC_UNKNOWN" [of(2, 6, 5, 0)];
    FmfcTableFull "OFPFMFC_TABLE_FULL" [of(1, 1, 3, 0), of(2, 6, 5, 1)];
    FmfcBadTableId "OFPFMFC_BAD_TABLE_ID" [of(2, 6, 5, 2)];
    FmfcOverlap "OFPFMFC_OVERLAP" [of(1, 1, 3, 1), of(2, 6, 5, 3)];
    FmfcEperm "OFPFMFC_EPERM" [of(1, 1, 3, 2), of(2, 6, 5, 4)];
    FmfcBadTimeout "OFPFMFC_BAD_TIMEOUT" [of(2, 6, 5, 5)];
    FmfcBadEmergTimeout "OFPFMFC_BAD_EMERG_TIMEOUT" [of(1, 1, 3, 3)];
    FmfcBadCommand "OFPFMFC_BAD_COMMAND" [of(1, 1, 3, 4), of(2, 6, 5, 6)];
    FmfcBadFlags "OFPFMFC_BAD_FLAGS" [nx(1, 1, 3, 258), nx(2, 2, 5, 258), of(3, 6, 5, 7)];
    FmfcUnsupported "OFPFMFC_UNSUPPORTED" [of(1, 1, 3, 5)];
    NxfmfcHardware "NXFMFC_HARDWARE" [nx(1, 2, 5, 256), nx(3, 6, 12, 0)];
    NxfmfcBadTableId "NXFMFC_BAD_TABLE_ID" [nx(1, 2, 5, 257), nx(3, 6, 13, 0)];
    NxfmfcInvalidTlvField "NXFMFC_INVALID_TLV_FIELD" [nx(1, 2, 1, 536), nx(3, 6, 37, 0)];
    GmfcGroupExists "OFPGMFC_GROUP_EXISTS" [nx(1, 1, 6, 0), of(2, 6, 6, 0)];
    GmfcInvalidGroup "OFPGMFC_INVALID_GROUP" [nx(1, 1, 6, 1), of(2, 6, 6, 1)];
    GmfcWeightUnsupported "OFPGMFC_WEIGHT_UNSUPPORTED" [nx(1, 1, 6, 2), of(2, 6, 6, 2)];
    GmfcOutOfGroups "OFPGMFC_OUT_OF_GROUPS" [nx(1, 1, 6, 3), of(2, 6, 6, 3)];
    GmfcOutOfBuckets "OFPGMFC_OUT_OF_BUCKETS" [nx(1, 1, 6, 4), of(2, 6, 6, 4)];
    GmfcChainingUnsupported "OFPGMFC_CHAINING_UNSUPPORTED" [nx(1, 1, 6, 5), of(2, 6, 6, 5)];
    GmfcWatchUnsupported "OFPGMFC_WATCH_UNSUPPORTED" [nx(1, 1, 6, 6), of(2, 6, 6, 6)];
    GmfcLoop "OFPGMFC_LOOP" [nx(1, 1, 6, 7), of(2, 6, 6, 7)];
    GmfcUnknownGroup "OFPGMFC_UNKNOWN_GROUP" [nx(1, 1, 6, 8), of(2, 6, 6, 8)];
    GmfcChainedGroup "OFPGMFC_CHAINED_GROUP" [nx(1, 1, 6, 9), of(3, 6, 6, 9)];
    GmfcBadType "OFPGMFC_BAD_TYPE" [nx(1, 1, 6, 10), of(3, 6, 6, 10)];
    GmfcBadCommand "OFPGMFC_BAD_COMMAND" [nx(1, 1, 6, 11), of(3, 6, 6, 11)];
    GmfcBadBucket "OFPGMFC_BAD_BUCKET" [nx(1, 1, 6, 12), of(3, 6, 6, 12)];
    GmfcBadWatch "OFPGMFC_BAD_WATCH" [nx(1, 1, 6, 13), of(3, 6, 6, 13)];
    GmfcEperm "OFPGMFC_EPERM" [nx(1, 1, 6, 14), of(3, 6, 6, 14)];
    GmfcUnknownBucket "OFPGMFC_UNKNOWN_BUCKET" [nx(1, 1, 6, 15), of(6, 6, 6, 15)];
    GmfcBucketExists "OFPGMFC_BUCKET_EXISTS" [nx(1, 1, 6, 16), of(6, 6, 6, 16)];
    PmfcBadPort "OFPPMFC_BAD_PORT" [of(1, 1, 4, 0), of(2, 6, 7, 0)];
    PmfcBadHwAddr "OFPPMFC_BAD_HW_ADDR" [of(1, 1, 4, 1), of(2, 6, 7, 1)];
    PmfcBadConfig "OFPPMFC_BAD_CONFIG" [of(2, 6, 7, 2)];
    PmfcBadAdvertise "OFPPMFC_BAD_ADVERTISE" [of(2, 6, 7, 3)];
    PmfcEperm "OFPPMFC_EPERM" [of(3, 6, 7, 4)];
    TmfcBadTable "OFPTMFC_BAD_TABLE" [of(2, 6, 8, 0)];
    TmfcBadConfig "OFPTMFC_BAD_CONFIG" [of(2, 6, 8, 1)];
    TmfcEperm "OFPTMFC_EPERM" [of(3, 6, 8, 2)];
    QofcBadPort "OFPQOFC_BAD_PORT" [of(1, 1, 5, 0), of(2, 6, 9, 0)];
    QofcBadQueue "OFPQOFC_BAD_QUEUE" [of(1, 1, 5, 1), of(2, 6, 9, 1)];
    QofcEperm "OFPQOFC_EPERM" [of(1, 1, 5, 2), of(2, 6, 9, 2)];
    ScfcBadFlags "OFPSCFC_BAD_FLAGS" [of(2, 6, 10, 0)];
    ScfcBadLen "OFPSCFC_BAD_LEN" [of(2, 6, 10, 1)];
    ScfcEperm "OFPSCFC_EPERM" [of(3, 6, 10, 2)];
    RrfcStale "OFPRRFC_STALE" [of(3, 6, 11, 0)];
    RrfcUnsup "OFPRRFC_UNSUP" [of(3, 6, 11, 1)];
    RrfcBadRole "OFPRRFC_BAD_ROLE" [nx(1, 2, 1, 513), of(3, 6, 11, 2)];
    MmfcUnknown "OFPMMFC_UNKNOWN" [of(4, 6, 12, 0)];
    MmfcMeterExists "OFPMMFC_METER_EXISTS" [of(4, 6, 12, 1)];
    MmfcInvalidMeter "OFPMMFC_INVALID_METER" [of(4, 6, 12, 2)];
    MmfcUnknownMeter "OFPMMFC_UNKNOWN_METER" [of(4, 6, 12, 3)];
    MmfcBadCommand "OFPMMFC_BAD_COMMAND" [of(4, 6, 12, 4)];
    MmfcBadFlags "OFPMMFC_BAD_FLAGS" [of(4, 6, 12, 5)];
    MmfcBadRate "OFPMMFC_BAD_RATE" [of(4, 6, 12, 6)];
    MmfcBadBurst "OFPMMFC_BAD_BURST" [of(4, 6, 12, 7)];
    MmfcBadBand "OFPMMFC_BAD_BAND" [of(4, 6, 12, 8)];
    MmfcBadBandValue "OFPMMFC_BAD_BAND_VALUE" [of(4, 6, 12, 9)];
    MmfcOutOfMeters "OFPMMFC_OUT_OF_METERS" [of(4, 6, 12, 10)];
    MmfcOutOfBands "OFPMMFC_OUT_OF_BANDS" [of(4, 6, 12, 11)];
    TffcBadTable "OFPTFFC_BAD_TABLE" [of(4, 6, 13, 0)];
    TffcBadMetadata "OFPTFFC_BAD_METADATA" [of(4, 6, 13, 1)];
    TffcEperm "OFPTFFC_EPERM" [of(4, 6, 13, 5)];
    TffcBadFeatures "OFPTFFC_BAD_FEATURES" [of(6, 6, 13, 8)];
    TffcBadCommand "OFPTFFC_BAD_COMMAND" [of(6, 6, 13, 9)];
    NxtffcDupTable "NXTFFC_DUP_TABLE" [nx(4, 6, 44, 0)];
    BpcBadType "OFPBPC_BAD_TYPE" [nx(1, 2, 13, 2), nx(3, 3, 25, 0), of(4, 4, 13, 2), of(5, 6, 14, 0)];
    BpcBadLen "OFPBPC_BAD_LEN" [nx(1, 2, 13, 3), nx(3, 3, 26, 0), of(4, 4, 13, 3), of(5, 6, 14, 1)];
    BpcBadValue "OFPBPC_BAD_VALUE" [nx(1, 2, 13, 4), nx(3, 3, 27, 0), of(4, 4, 13, 4), of(5, 6, 14, 2)];
    BpcTooMany "OFPBPC_TOO_MANY" [nx(1, 2, 14, 3), nx(3, 3, 28, 0), onf(4, 4, 4443, 0), of(5, 6, 14, 3)];
    BpcDupType "OFPBPC_DUP_TYPE" [nx(1, 2, 14, 4), nx(3, 3, 29, 0), onf(4, 4, 4444, 0), of(5, 6, 14, 4)];
    BpcBadExperimenter "OFPBPC_BAD_EXPERIMENTER" [nx(1, 2, 14, 5), nx(3, 3, 30, 0), onf(4, 4, 4445, 0), of(5, 6, 14, 5)];
    BpcBadExpType "OFPBPC_BAD_EXP_TYPE" [nx(1, 2, 14, 6), nx(3, 3, 31, 0), onf(4, 4, 4446, 0), of(5, 6, 14, 6)];
    BpcBadExpValue "OFPBPC_BAD_EXP_VALUE" [nx(1, 2, 14, 7), nx(3, 3, 32, 0), onf(4, 4, 4447, 0), of(5, 6, 14, 7)];
    BpcEperm "OFPBPC_EPERM" [nx(1, 2, 14, 8), nx(3, 3, 33, 0), onf(4, 4, 4448, 0), of(5, 6, 14, 8)];
    AcfcInvalid "OFPACFC_INVALID" [onf(4, 4, 2370, 0), of(5, 6, 15, 0)];
    AcfcUnsupported "OFPACFC_UNSUPPORTED" [onf(4, 4, 2371, 0), of(5, 6, 15, 1)];
    AcfcEperm "OFPACFC_EPERM" [onf(4, 4, 2372, 0), of(5, 6, 15, 2)];
    MofcUnknown "OFPMOFC_UNKNOWN" [of(5, 6, 16, 0)];
    MofcMonitorExists "OFPMOFC_MONITOR_EXISTS" [nx(1, 2, 1, 517), nx(3, 4, 6, 0), of(5, 6, 16, 1)];
    MofcInvalidMonitor "OFPMOFC_INVALID_MONITOR" [of(5, 6, 16, 2)];
    MofcUnknownMonitor "OFPMOFC_UNKNOWN_MONITOR" [nx(1, 2, 1, 519), nx(3, 4, 8, 0), of(5, 6, 16, 3)];
    MofcBadCommand "OFPMOFC_BAD_COMMAND" [of(5, 6, 16, 4)];
    MofcBadFlags "OFPMOFC_BAD_FLAGS" [nx(1, 2, 1, 518), nx(3, 4, 7, 0), of(5, 6, 16, 5)];
    MofcBadTableId "OFPMOFC_BAD_TABLE_ID" [of(5, 6, 16, 6)];
    MofcBadOut "OFPMOFC_BAD_OUT" [of(5, 6, 16, 7)];
    BfcUnknown "OFPBFC_UNKNOWN" [onf(4, 4, 2300, 0), of(5, 6, 17, 0)];
    BfcEperm "OFPBFC_EPERM" [onf(4, 4, 2301, 0), of(5, 6, 17, 1)];
    BfcBadId "OFPBFC_BAD_ID" [onf(4, 4, 2302, 0), of(5, 6, 17, 2)];
    BfcBundleExist "OFPBFC_BUNDLE_EXIST" [onf(4, 4, 2303, 0), of(5, 6, 17, 3)];
    BfcBundleClosed "OFPBFC_BUNDLE_CLOSED" [onf(4, 4, 2304, 0), of(5, 6, 17, 4)];
    BfcOutOfBundles "OFPBFC_OUT_OF_BUNDLES" [onf(4, 4, 2305, 0), of(5, 6, 17, 5)];
    BfcBadType "OFPBFC_BAD_TYPE" [onf(4, 4, 2306, 0), of(5, 6, 17, 6)];
    BfcBadFlags "OFPBFC_BAD_FLAGS" [onf(4, 4, 2307, 0), of(5, 6, 17, 7)];
    BfcMsgBadLen "OFPBFC_MSG_BAD_LEN" [onf(4, 4, 2308, 0), of(5, 6, 17, 8)];
    BfcMsgBadXid "OFPBFC_MSG_BAD_XID" [onf(4, 4, 2309, 0), of(5, 6, 17, 9)];
    BfcMsgUnsup "OFPBFC_MSG_UNSUP" [onf(4, 4, 2310, 0), of(5, 6, 17, 10)];
    BfcMsgConflict "OFPBFC_MSG_CONFLICT" [onf(4, 4, 2311, 0), of(5, 6, 17, 11)];
    BfcMsgTooMany "OFPBFC_MSG_TOO_MANY" [onf(4, 4, 2312, 0), of(5, 6, 17, 12)];
    BfcMsgFailed "OFPBFC_MSG_FAILED" [onf(4, 4, 2313, 0), of(5, 6, 17, 13)];
    BfcTimeout "OFPBFC_TIMEOUT" [onf(4, 4, 2314, 0), of(5, 6, 17, 14)];
    BfcBundleInProgress "OFPBFC_BUNDLE_IN_PROGRESS" [onf(4, 4, 2315, 0), of(5, 6, 17, 15)];
    BfcBadVersion "OFPBFC_BAD_VERSION" [nx(3, 6, 22, 0)];
    NxttmfcBadCommand "NXTTMFC_BAD_COMMAND" [nx(1, 2, 1, 527), nx(3, 6, 16, 0)];
    NxttmfcBadOptLen "NXTTMFC_BAD_OPT_LEN" [nx(1, 2, 1, 528), nx(3, 6, 17, 0)];
    NxttmfcBadFieldIdx "NXTTMFC_BAD_FIELD_IDX" [nx(1, 2, 1, 529), nx(3, 6, 18, 0)];
    NxttmfcTableFull "NXTTMFC_TABLE_FULL" [nx(1, 2, 1, 530), nx(3, 6, 19, 0)];
    NxttmfcAlreadyMapped "NXTTMFC_ALREADY_MAPPED" [nx(1, 2, 1, 531), nx(3, 6, 20, 0)];
    NxttmfcDupEntry "NXTTMFC_DUP_ENTRY" [nx(1, 2, 1, 532), nx(3, 6, 21, 0)];
    NxttmfcInvalidTlvDel "NXTTMFC_INVALID_TLV_DEL" [nx(1, 2, 1, 537), nx(3, 6, 38, 0)];
    NxrNotSupported "NXR_NOT_SUPPORTED" [nx(1, 2, 1, 533), nx(3, 6, 34, 0)];
    NxrStale "NXR_STALE" [nx(1, 2, 1, 534), nx(3, 6, 35, 0)];
    NxstNotConfigured "NXST_NOT_CONFIGURED" [nx(1, 2, 1, 535), nx(3, 6, 36, 0)];
}
