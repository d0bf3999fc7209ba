// What kernels share: code for the processor at hand, vectors of floats, and work for the threads that XLA lends.

#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>

#include "xla/ffi/api/ffi.h"

#define INLINE __attribute__((always_inline)) inline
// Of a lambda, after its parameters.
#define INLINED __attribute__((always_inline))

#if defined(__x86_64__)

template <typename Work>
__attribute__((target("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl"))) void RunWithAVX512(const Work &work) {
  work();
}

template <typename Work>
__attribute__((target("avx2,fma"))) void RunWithAVX2(const Work &work) {
  work();
}

// Calls `work`, which is inlined into a function for the instructions that the processor has.
template <typename Work>
void RunFast(const Work &work) {
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    RunWithAVX512(work);
  } else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    RunWithAVX2(work);
  } else {
    work();
  }
}

#else

template <typename Work>
void RunFast(const Work &work) {
  work();
}

#endif

// GCC and Clang lower it to what the processor has.
constexpr int kLanes = 8;
typedef float Vector __attribute__((vector_size(kLanes * sizeof(float))));

INLINE Vector Load(const float *from) {
  Vector vector;
  std::memcpy(&vector, from, sizeof vector);
  return vector;
}

INLINE void Store(float *to, Vector vector) { std::memcpy(to, &vector, sizeof vector); }

INLINE void Add(float *to, Vector vector) { Store(to, Load(to) + vector); }

// Calls `work` for every number below `count`, in this thread and in those of XLA that come to help.
inline void InParallel(xla::ffi::ThreadPool &threads, int64_t count, std::function<void(int64_t)> work) {
  struct Tasks {
    const int64_t count;
    const std::function<void(int64_t)> work;
    std::atomic<int64_t> next{0};
    int64_t done = 0;
    std::mutex mutex;
    std::condition_variable all_done;

    Tasks(int64_t count, std::function<void(int64_t)> work) : count(count), work(std::move(work)) {}

    void Help() {
      int64_t mine = 0;
      for (int64_t task; (task = next.fetch_add(1)) < count; ++mine) work(task);
      std::lock_guard<std::mutex> lock(mutex);
      done += mine;
      if (done == count) all_done.notify_all();
    }
  };
  auto tasks = std::make_shared<Tasks>(count, std::move(work));  // a thread that comes too late still finds it
  for (int64_t thread = 1; thread < std::min(threads.num_threads(), count); ++thread) {
    threads.Schedule([tasks] { tasks->Help(); });
  }
  tasks->Help();
  std::unique_lock<std::mutex> lock(tasks->mutex);
  tasks->all_done.wait(lock, [&] { return tasks->done == tasks->count; });  // for who has begun, and nobody else
}
