//! A concurrent map whose values are made once: whoever asks for a key that is being made waits for it.
//! A failure is not kept. No reference into the map is held while a value is made, so making one may ask
//! for another key.

use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use dashmap::DashMap;

/// The map. Callers must not be rayon workers: a waiting worker could steal the work that it waits for.
pub(super) struct Once<K, V> {
    slots: DashMap<K, Arc<Mutex<Option<V>>>>,
}

impl<K: Eq + Hash, V: Clone> Once<K, V> {
    pub(super) fn new() -> Self {
        Self {
            slots: DashMap::new(),
        }
    }

    /// Forgets every value.
    pub(super) fn clear(&self) {
        self.slots.clear();
    }

    /// The value of `key`, made by `make` if nobody made it yet, and whether it was there already.
    pub(super) fn get_or_make<E>(
        &self,
        key: K,
        make: impl FnOnce() -> Result<V, E>,
    ) -> Result<(V, bool), E> {
        // The clone ends the borrow of the map before the slot is locked.
        let slot = Arc::clone(&*self.slots.entry(key).or_default());
        // A maker that panicked left the slot empty: the next one makes it.
        let mut value = slot.lock().unwrap_or_else(PoisonError::into_inner);
        match &*value {
            Some(value) => Ok((value.clone(), true)),
            None => {
                let made = make()?;
                *value = Some(made.clone());
                Ok((made, false))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn concurrent_askers_make_a_value_once() {
        let (once, made) = (Once::new(), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let make = || {
                        std::thread::sleep(std::time::Duration::from_millis(20));
                        Ok::<_, ()>(made.fetch_add(1, Ordering::SeqCst))
                    };
                    assert_eq!(once.get_or_make("key", make).map(|(value, _)| value), Ok(0));
                });
            }
        });
        assert_eq!(made.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_failure_is_not_kept() {
        let once = Once::new();
        assert_eq!(once.get_or_make(1, || Err::<u8, _>("no")), Err("no"));
        assert_eq!(once.get_or_make(1, || Ok::<_, &str>(7)), Ok((7, false)));
        assert_eq!(once.get_or_make(1, || Err("not asked")), Ok((7, true)));
    }

    #[test]
    fn making_one_value_may_ask_for_another() {
        let once = Once::new();
        let outer = once.get_or_make(1, || {
            once.get_or_make(2, || Ok::<_, ()>(20))
                .map(|(value, _)| value + 1)
        });
        assert_eq!(outer, Ok((21, false)));
    }
}
