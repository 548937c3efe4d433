// What ThreadSanitizer leaves out in test programs. Ours is never suppressed: under it, our kernels run on threads whose
// synchronization it sees (core/parallel.cpp).
#if defined(__SANITIZE_THREAD__)
extern "C" {

/// oneDNN and libgomp are not compiled with ThreadSanitizer. It sees their calls of memcpy, malloc and the like, but
/// neither libgomp's barriers nor the accesses between them, and takes each such pair for a race.
const char* __tsan_default_suppressions();
const char* __tsan_default_suppressions() {
  return "called_from_lib:libgomp.so\n"
         "called_from_lib:libdnnl.so\n";
}

}
#endif
