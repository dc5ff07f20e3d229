// Runs the threads of a launch on the host, and notes what they do that C++
// leaves undefined.
//
// Blocks run one after another. A kernel whose threads do not wait for each
// other is called once for each thread; otherwise each thread of a block has a
// stack of its own and gives way at barriers and exchanges. What the compiler's
// checks find is noted with file and line, and a signal of the kernel ends its
// run instead of the process.

#include <csetjmp>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ucontext.h>

struct place { unsigned x, y, z; };
extern "C" {
place threadIdx, blockIdx, blockDim, gridDim;
double (*simulated_unary)(unsigned op, double x);
double (*simulated_binary)(unsigned op, int is_f64, double x, double y);
unsigned char* dynamic_shared;
}

// What was found, in the order of severity; the numbers are those of `run.rs`.
enum finding { nothing, overflow, shift, misaligned, bounds, value, division, died, stuck };

struct report {
  int32_t what;
  uint32_t line, column;
  uint32_t detail;
  uint64_t times;
};

struct location { const char* file; uint32_t line, column; };

namespace {

report* current;
sigjmp_buf out;

void note(finding what, const location* at) {
  if (!current) return;
  ++current->times;
  if (current->what != nothing) return;
  current->what = what;
  current->line = at->line;
  current->column = at->column;
}

[[noreturn]] void leave(finding what, uint32_t detail) {
  current->what = what;
  current->detail = detail;
  siglongjmp(out, 1);
}

void on_signal(int number) {
  if (current) leave(died, (uint32_t)number);
  signal(number, SIG_DFL);
  raise(number);
}

// Threads of a block.

enum state : unsigned char { ready, at_warp, at_block, done };
constexpr int most = 1024, lanes = 32;
constexpr size_t stack_bytes = 64 << 10;

// Each place of a block has a stack for good: its threads run there one after the other. A context is what the first
// of them begins in; from then on it is jumps to and fro, which ask the kernel of the system for nothing.
jmp_buf scheduler;
jmp_buf resumed[most];
bool begun[most];
ucontext_t contexts[most];
state states[most];
uint64_t slots[most];
char* stacks;
int running;
void (*entry)(void**);
void** entry_args;

void to_scheduler(int self) {
  if (_setjmp(resumed[self]) == 0) _longjmp(scheduler, 1);
}

void to_thread(int thread) {
  if (_setjmp(scheduler) != 0) return;
  if (begun[thread]) _longjmp(resumed[thread], 1);
  begun[thread] = true;
  setcontext(&contexts[thread]);
}

void start() {
  for (;;) {
    entry(entry_args);
    states[running] = done;
    to_scheduler(running);
  }
}

void yield(state why) {
  const int self = running;
  states[self] = why;
  to_scheduler(self);
}

place position(unsigned thread) {
  return {thread % blockDim.x, thread / blockDim.x % blockDim.y, thread / blockDim.x / blockDim.y};
}

// Runs a warp until all of its threads wait for the block or have ended.
void run_warp(int first, int last) {
  for (;;) {
    for (int thread = first; thread < last; ++thread) {
      if (states[thread] != ready) continue;
      running = thread;
      threadIdx = position((unsigned)thread);
      to_thread(thread);
    }
    int exchanging = 0, blocked = 0;
    for (int thread = first; thread < last; ++thread) {
      exchanging += states[thread] == at_warp;
      blocked += states[thread] == at_block;
    }
    if (exchanging == 0) return;
    if (blocked != 0) leave(stuck, (uint32_t)first);
    for (int thread = first; thread < last; ++thread) {
      if (states[thread] == at_warp) states[thread] = ready;
    }
  }
}

void run_block(int threads) {
  if (!stacks) stacks = (char*)malloc(most * stack_bytes);
  for (int thread = 0; thread < threads; ++thread) {
    states[thread] = ready;
    if (begun[thread]) continue;
    getcontext(&contexts[thread]);
    contexts[thread].uc_stack.ss_sp = stacks + (size_t)thread * stack_bytes;
    contexts[thread].uc_stack.ss_size = stack_bytes;
    contexts[thread].uc_link = nullptr;
    makecontext(&contexts[thread], start, 0);
  }
  for (;;) {
    for (int first = 0; first < threads; first += lanes) {
      run_warp(first, first + lanes < threads ? first + lanes : threads);
    }
    int waiting = 0;
    for (int thread = 0; thread < threads; ++thread) {
      if (states[thread] != at_block) continue;
      states[thread] = ready;
      ++waiting;
    }
    if (waiting == 0) return;
  }
}

void run_grid(bool together) {
  const unsigned threads = blockDim.x * blockDim.y * blockDim.z;
  for (blockIdx.z = 0; blockIdx.z < gridDim.z; ++blockIdx.z) {
    for (blockIdx.y = 0; blockIdx.y < gridDim.y; ++blockIdx.y) {
      for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x) {
        if (together) {
          run_block((int)threads);
          continue;
        }
        for (unsigned thread = 0; thread < threads; ++thread) {
          threadIdx = position(thread);
          entry(entry_args);
        }
      }
    }
  }
}

}  // namespace

extern "C" {

void wait_for_block() { yield(at_block); }
void wait_for_warp() { yield(at_warp); }
int own_lane() { return running % lanes; }

// The word of another lane; all lanes of a warp take part.
unsigned long long exchange(unsigned long long word, int source) {
  const int self = running, first = self - self % lanes;
  slots[self] = word;
  yield(at_warp);
  const uint64_t other = slots[first + source];
  yield(at_warp);
  return other;
}

void set_functions(double (*unary)(unsigned, double), double (*binary)(unsigned, int, double, double)) {
  simulated_unary = unary;
  simulated_binary = binary;
}

// Runs all threads of a launch; `dims` are the grid and the block in x, y, z.
void run_launch(void (*kernel)(void**), void** args, const uint32_t* dims, int together, unsigned char* shared,
                report* result) {
  const int signals[] = {SIGFPE, SIGSEGV, SIGBUS, SIGILL};
  struct sigaction own, old[4];
  memset(&own, 0, sizeof(own));
  own.sa_handler = on_signal;
  own.sa_flags = SA_NODEFER;
  for (int i = 0; i < 4; ++i) sigaction(signals[i], &own, &old[i]);
  gridDim = {dims[0], dims[1], dims[2]};
  blockDim = {dims[3], dims[4], dims[5]};
  entry = kernel;
  entry_args = args;
  dynamic_shared = shared;
  current = result;
  if (sigsetjmp(out, 1) == 0) {
    run_grid(together != 0);
  } else {
    // Threads stand in the middle of a kernel that is left.
    memset(begun, 0, sizeof(begun));
  }
  current = nullptr;
  for (int i = 0; i < 4; ++i) sigaction(signals[i], &old[i], nullptr);
}

// What the compiler's checks call. Those of arithmetic go on with the wrapped
// result; a division by zero cannot.
void __ubsan_handle_add_overflow(location* at, uintptr_t, uintptr_t) { note(overflow, at); }
void __ubsan_handle_sub_overflow(location* at, uintptr_t, uintptr_t) { note(overflow, at); }
void __ubsan_handle_mul_overflow(location* at, uintptr_t, uintptr_t) { note(overflow, at); }
void __ubsan_handle_negate_overflow(location* at, uintptr_t) { note(overflow, at); }
void __ubsan_handle_divrem_overflow(location* at, uintptr_t, uintptr_t) {
  current->line = at->line;
  current->column = at->column;
  leave(division, 0);
}
void __ubsan_handle_shift_out_of_bounds(location* at, uintptr_t, uintptr_t) { note(shift, at); }
void __ubsan_handle_out_of_bounds(location* at, uintptr_t) {
  current->line = at->line;
  current->column = at->column;
  leave(bounds, 0);
}
void __ubsan_handle_type_mismatch_v1(location* at, uintptr_t) { note(misaligned, at); }
void __ubsan_handle_load_invalid_value(location* at, uintptr_t) { note(value, at); }

}
