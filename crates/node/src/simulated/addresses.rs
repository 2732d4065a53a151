//! Addresses of pods and nodes.

use std::net::Ipv4Addr;

/// Pods have addresses of 10.128.0.0/9, nodes of 10.0.0.0/9.
const PODS: u32 = 0x0a80_0000;
const NODES: u32 = 0x0a00_0000;
const SIZE: u32 = 1 << 23;

/// The address of a node.
pub fn of_node(index: u32) -> Ipv4Addr {
    Ipv4Addr::from(NODES + (index + 1) % SIZE)
}

/// Which addresses pods have: one bit each, handed out in turn so that an address is not used again soon.
#[derive(Default)]
pub struct Pool {
    used: Vec<u64>,
    count: u32,
    next: u32,
}

impl Pool {
    /// A free address.
    pub fn take(&mut self) -> Option<Ipv4Addr> {
        // The first and the last are not for hosts.
        if self.count >= SIZE - 2 {
            return None;
        }
        loop {
            self.next = self.next % (SIZE - 2) + 1;
            if self.mark(self.next) {
                return Some(Ipv4Addr::from(PODS + self.next));
            }
        }
    }

    /// This address has a pod already.
    pub fn reserve(&mut self, address: &str) {
        if let Some(offset) = offset(address) {
            self.mark(offset);
        }
    }

    /// The pod of this address is gone.
    pub fn give_back(&mut self, address: &str) {
        let Some(offset) = offset(address) else { return };
        if let Some(word) = self.used.get_mut(offset as usize / 64)
            && *word & (1 << (offset % 64)) != 0
        {
            *word &= !(1 << (offset % 64));
            self.count -= 1;
        }
    }

    /// Whether it was free.
    fn mark(&mut self, offset: u32) -> bool {
        let word = offset as usize / 64;
        if word >= self.used.len() {
            self.used.resize(word + 1, 0);
        }
        let bit = 1 << (offset % 64);
        let free = self.used[word] & bit == 0;
        self.used[word] |= bit;
        self.count += u32::from(free);
        free
    }
}

fn offset(address: &str) -> Option<u32> {
    let address = u32::from(address.parse::<Ipv4Addr>().ok()?);
    address.checked_sub(PODS).filter(|offset| *offset < SIZE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_address_is_given_twice_until_it_comes_back() {
        let mut pool = Pool::default();
        pool.reserve("10.128.0.2");
        pool.reserve("not an address");
        let first: Vec<String> = (0..3).filter_map(|_| pool.take()).map(|a| a.to_string()).collect();
        assert_eq!(first, ["10.128.0.1", "10.128.0.3", "10.128.0.4"]);
        pool.give_back("10.128.0.1");
        pool.give_back("10.128.0.1");
        pool.give_back("192.168.0.1");
        assert_eq!(pool.take().unwrap().to_string(), "10.128.0.5", "what came back rests");
        assert_eq!(pool.count, 4);
    }

    #[test]
    fn the_pool_goes_round_and_ends() {
        let mut pool = Pool { next: SIZE - 3, ..Pool::default() };
        assert_eq!(pool.take().unwrap().to_string(), "10.255.255.254");
        assert_eq!(pool.take().unwrap().to_string(), "10.128.0.1");
        pool.count = SIZE - 2;
        assert_eq!(pool.take(), None);
    }
}
