//! Volumes, claims and drivers.

use serde_json::Value;
use shoal_objects::meta;

use super::Column;
use super::cells::{AGE, NAME, NONE, UNSET, count, each, flag, joined, or, quantity, text, text_or};
use crate::kinds::access::{at, field, list_at, str_at};

const ATTRIBUTES_CLASS_NAME: Column =
    Column::text("VolumeAttributesClass", "The class of its mutable attributes.", |o, _| {
        at(o, &["spec", "volumeAttributesClassName"]).and_then(Value::as_str).unwrap_or(UNSET).into()
    });
const CLASS_NAME: Column = Column::text("StorageClass", "The class of storage.", |o, _| {
    // Older than the field, and still stronger.
    let annotated = meta::annotation(o, "volume.beta.kubernetes.io/storage-class");
    annotated.map_or_else(|| text(o, &["spec", "storageClassName"]), Value::from)
});
const MODE: Column = Column::text("VolumeMode", "Whether it is a filesystem or a device.", |o, _| {
    text_or(o, &["spec", "volumeMode"], UNSET)
})
.wide();

/// Columns of persistent volumes.
pub static VOLUME: &[Column] = &[
    NAME,
    Column::text("Capacity", "How much it holds.", |o, _| {
        quantity(at(o, &["spec", "capacity", "storage"])).into()
    }),
    Column::text("Access Modes", "How it can be mounted.", |o, _| access_modes(field(o, "spec")).into()),
    Column::text("Reclaim Policy", "What happens to it when its claim is gone.", |o, _| {
        text(o, &["spec", "persistentVolumeReclaimPolicy"])
    }),
    Column::text("Status", "Whether it is bound.", |o, _| phase(o)),
    Column::text("Claim", "The claim it is bound to.", |o, _| {
        at(o, &["spec", "claimRef"]).map_or("".into(), |claim| {
            format!("{}/{}", str_at(claim, "namespace"), str_at(claim, "name")).into()
        })
    }),
    CLASS_NAME,
    ATTRIBUTES_CLASS_NAME,
    Column::text("Reason", "Why it is in its state.", |o, _| text(o, &["status", "reason"])),
    AGE,
    MODE,
];

/// Columns of persistent volume claims. What a volume gives is shown once there is one.
pub static CLAIM: &[Column] = &[
    NAME,
    Column::text("Status", "Whether it is bound.", |o, _| phase(o)),
    Column::text("Volume", "The volume it is bound to.", |o, _| text(o, &["spec", "volumeName"])),
    Column::text("Capacity", "How much the volume holds.", |o, _| {
        if has_volume(o) { quantity(at(o, &["status", "capacity", "storage"])).into() } else { "".into() }
    }),
    Column::text("Access Modes", "How the volume can be mounted.", |o, _| {
        if has_volume(o) { access_modes(field(o, "status")).into() } else { "".into() }
    }),
    CLASS_NAME,
    ATTRIBUTES_CLASS_NAME,
    AGE,
    MODE,
];

/// Columns of storage classes.
pub static STORAGE_CLASS: &[Column] = &[
    Column {
        cell: |o, _| {
            let annotations = [
                "storageclass.kubernetes.io/is-default-class",
                "storageclass.beta.kubernetes.io/is-default-class",
            ];
            class_name(o, &annotations)
        },
        ..NAME
    },
    Column::text("Provisioner", "Who makes volumes of the class.", |o, _| text(o, &["provisioner"])),
    Column::text("ReclaimPolicy", "What happens to volumes when their claims are gone.", |o, _| {
        text_or(o, &["reclaimPolicy"], "Delete")
    }),
    Column::text("VolumeBindingMode", "When volumes are made and bound.", |o, _| {
        text_or(o, &["volumeBindingMode"], "Immediate")
    }),
    Column::text("AllowVolumeExpansion", "Whether volumes can grow.", |o, _| {
        flag(o, &["allowVolumeExpansion"], false)
    }),
    AGE,
];

/// Columns of volume attributes classes.
pub static ATTRIBUTES_CLASS: &[Column] = &[
    Column {
        cell: |o, _| class_name(o, &["volumeattributesclass.alpha.kubernetes.io/is-default-class"]),
        ..NAME
    },
    Column::text("DriverName", "The driver that knows the attributes.", |o, _| text(o, &["driverName"])),
    AGE,
];

/// Columns of volume attachments.
pub static ATTACHMENT: &[Column] = &[
    NAME,
    Column::text("Attacher", "The driver that attaches.", |o, _| text(o, &["spec", "attacher"])).naming(),
    Column::text("PV", "The volume.", |o, _| text(o, &["spec", "source", "persistentVolumeName"])),
    Column::text("Node", "The node it is attached to.", |o, _| text(o, &["spec", "nodeName"])),
    Column::boolean("Attached", "Whether it is attached by now.", |o, _| {
        flag(o, &["status", "attached"], false)
    }),
    AGE,
];

/// Columns of CSI nodes.
pub static CSI_NODE: &[Column] = &[
    NAME,
    Column::number("Drivers", "How many drivers the node has.", |o, _| count(o, &["spec", "drivers"]).into()),
    AGE,
];

/// Columns of CSI drivers.
pub static CSI_DRIVER: &[Column] = &[
    NAME,
    Column::boolean("AttachRequired", "Whether volumes are attached before they are mounted.", |o, _| {
        flag(o, &["spec", "attachRequired"], true)
    }),
    Column::boolean("PodInfoOnMount", "Whether the driver is told about the pod.", |o, _| {
        flag(o, &["spec", "podInfoOnMount"], false)
    }),
    Column::boolean("StorageCapacity", "Whether scheduling looks at free capacity.", |o, _| {
        flag(o, &["spec", "storageCapacity"], false)
    }),
    Column::text("TokenRequests", "For which audiences the driver gets tokens.", |o, _| {
        let spec = field(o, "spec");
        let requested = spec.is_some_and(|spec| field(spec, "tokenRequests").is_some());
        if requested { each(spec, "tokenRequests", "audience").into() } else { UNSET.into() }
    }),
    Column::boolean("RequiresRepublish", "Whether mounts are refreshed.", |o, _| {
        flag(o, &["spec", "requiresRepublish"], false)
    }),
    Column::text("Modes", "Lifecycles of volumes the driver knows.", |o, _| {
        or(joined(field(o, "spec"), "volumeLifecycleModes"), NONE)
    }),
    AGE,
];

/// Columns of CSI storage capacities.
pub static CSI_CAPACITY: &[Column] = &[
    NAME,
    Column::text("StorageClassName", "The class the capacity is of.", |o, _| text(o, &["storageClassName"])),
    Column::text("Capacity", "How much is free.", |o, _| {
        field(o, "capacity").map_or(UNSET.into(), |capacity| quantity(Some(capacity)).into())
    }),
];

fn phase(object: &Value) -> Value {
    if meta::deletion_timestamp(object).is_some() {
        "Terminating".into()
    } else {
        text(object, &["status", "phase"])
    }
}

fn has_volume(claim: &Value) -> bool {
    field(claim, "spec").is_some_and(|spec| !str_at(spec, "volumeName").is_empty())
}

/// `RWO,ROX,RWX,RWOP`, whatever the order in the object.
fn access_modes(parent: Option<&Value>) -> String {
    let modes = parent.map_or(&[][..], |parent| list_at(parent, "accessModes"));
    let known = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let given = known.iter().filter(|(mode, _)| modes.iter().any(|m| m.as_str() == Some(mode)));
    given.map(|(_, short)| *short).collect::<Vec<_>>().join(",")
}

/// The class that is taken when none is named is marked.
fn class_name(class: &Value, default_annotations: &[&str]) -> Value {
    let default = default_annotations.iter().any(|key| meta::annotation(class, key) == Some("true"));
    format!("{}{}", meta::name(class), if default { " (default)" } else { "" }).into()
}
