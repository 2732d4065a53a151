//! Pods that run as real processes of this machine's user.

mod cluster;
mod life;
mod network;
mod volumes;
