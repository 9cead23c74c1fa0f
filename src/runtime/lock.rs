//! Locks a mutex whether or not a thread panicked while it held it.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Ignores poison: our critical sections leave the data usable at every step, and a controller that
/// panics at every later lock would be worse than one that goes on.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
