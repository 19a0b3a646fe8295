#include "pjrt/buffer.h"

#include <sys/mman.h>

#include <atomic>
#include <cstring>
#include <limits>
#include <thread>

#include "support.h"

namespace tpj::pjrt {
namespace {

using test::expect_error;
class BufferTest : public test::WithPlugin {
 protected:
  static std::shared_ptr<Client> visible() {
    static auto& c = *new std::shared_ptr<Client>(Client::create(
        Plugin::load(test::plugin_path()), {{"cpu_device_count", int64_t{1}}}, {{"host_visible_buffers", "true"}}));
    return c;
  }
};

TEST_F(BufferTest, EveryElementTypeMakesTheRoundTrip) {
  const auto c = test::client();
  const int64_t dims[] = {3, 5};
  for (const DType dtype : {
#define X(name, ...) DType::name,
           TPJ_DTYPES(X)
#undef X
       }) {
    const size_t n = 15 * size_of(dtype);
    std::vector<unsigned char> in(n), out(n);
    for (size_t i = 0; i < n; ++i) in[i] = static_cast<unsigned char>(is_bool(dtype) ? i % 2 : i * 7);
    const Buffer b = c->from_host(in.data(), dtype, dims, 0);
    std::fill(in.begin(), in.end(), 0);  // copied during the call
    EXPECT_EQ(b.type(), (TensorType{dtype, {3, 5}}));
    EXPECT_EQ(b.nbytes(), static_cast<int64_t>(n));
    b.to_host(out.data(), n);
    for (size_t i = 0; i < n; ++i)
      ASSERT_EQ(out[i], static_cast<unsigned char>(is_bool(dtype) ? i % 2 : i * 7))
          << info(dtype).name << " byte " << i;
  }
}

TEST_F(BufferTest, ScalarsAndManyDimensionsWork) {
  const auto c = test::client();
  const float x = 4;
  float y = 0;
  c->from_host(&x, DType::F32, {}, 0).to_host(&y, sizeof y);
  EXPECT_EQ(y, 4);
  const std::vector<int64_t> dims(20, 1);
  const Buffer b = c->from_host(&x, DType::F32, dims, 0);
  EXPECT_EQ(b.dims(), dims);
  y = 0;
  b.to_host(&y, sizeof y);
  EXPECT_EQ(y, 4);
}

TEST_F(BufferTest, EmptyArraysNeedNoMemory) {
  const int64_t dims[] = {2, 0, 3};
  for (const auto& c : {test::client(), visible()}) {
    const Buffer b = c->from_host(nullptr, DType::F64, dims, 0);
    EXPECT_EQ(b.nbytes(), 0);
    EXPECT_NO_THROW(b.to_host(nullptr, 0));
    EXPECT_NO_THROW(c->uninitialized(DType::I8, dims, 0).await());
  }
}

TEST_F(BufferTest, BadUploadsAreRefusedBeforeThePluginSeesThem) {
  const auto c = test::client();
  const float x = 0;
  const int64_t one[] = {1}, negative[] = {2, -1}, huge[] = {int64_t{1} << 62, 4}, hidden[] = {0, int64_t{1} << 62, 4};
  expect_error(ErrorKind::kRuntime, {"null data", "f32[1]"}, [&] { c->from_host(nullptr, DType::F32, one, 0); });
  expect_error(ErrorKind::kRuntime, {"negative dimension"}, [&] { c->from_host(&x, DType::F32, negative, 0); });
  expect_error(ErrorKind::kRuntime, {"overflows"}, [&] { c->from_host(&x, DType::F32, huge, 0); });
  expect_error(ErrorKind::kRuntime, {"overflows"}, [&] { c->uninitialized(DType::F32, huge, 0); });
  expect_error(ErrorKind::kRuntime, {"overflows"}, [&] { c->uninitialized(DType::F32, hidden, 0); });
  expect_error(ErrorKind::kRuntime, {"negative"}, [&] { c->uninitialized(DType::F32, negative, 0); });
  expect_error(ErrorKind::kInternal, {"not in the table"}, [&] { c->uninitialized(static_cast<DType>(200), {}, 0); });
}

TEST_F(BufferTest, ATerabyteIsOutOfMemory) {
  const auto c = test::client();
  const int64_t dims[] = {test::kTerabyte};
  expect_error(ErrorKind::kOutOfMemory, {"RESOURCE_EXHAUSTED"}, [&] { c->uninitialized(DType::U8, dims, 0).await(); });
  void* nothing = mmap(nullptr, test::kTerabyte, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (nothing == MAP_FAILED) GTEST_SKIP() << "no address space for a terabyte to upload";
  expect_error(ErrorKind::kOutOfMemory, {"RESOURCE_EXHAUSTED"},
               [&] { c->from_host(nothing, DType::U8, dims, 0).await(); });
  munmap(nothing, test::kTerabyte);
}

TEST_F(BufferTest, ReadsNeedTheExactSize) {
  const Buffer b = test::floats(*test::client(), {1, 2});
  float out[3];
  expect_error(ErrorKind::kRuntime, {"f32[2] has 8 bytes", "4"}, [&] { b.to_host(out, 4); });
  expect_error(ErrorKind::kRuntime, {"f32[2] has 8 bytes", "12"}, [&] { b.to_host(out, 12); });
  expect_error(ErrorKind::kRuntime, {"null destination"}, [&] { b.to_host(nullptr, 8); });
}

TEST_F(BufferTest, ReadsAreRowMajorWhateverTheDeviceLayout) {
  const auto c = test::client();
  const std::string t = "tensor<3x2xf32>";
  const auto e = c->compile(
      "module @m { func.func @main(%a: tensor<2x3xf32>) -> (tensor<3x2xf32> {mhlo.layout_mode = \"{0,1}\"}) {\n"
      "%0 = stablehlo.transpose %a, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>\nreturn %0 : "
      "tensor<3x2xf32>\n} }",
      {});
  const int64_t dims[] = {2, 3};
  const std::vector<float> in = {1, 2, 3, 4, 5, 6};
  const Buffer a = c->from_host(in.data(), DType::F32, dims, 0);
  const Buffer* args[] = {&a};
  EXPECT_EQ(test::read(e->run(args)[0]), (std::vector<float>{1, 4, 2, 5, 3, 6}));
}

template <typename F>
void expect_unusable(const Buffer& b, F text) {
  float out[2];
  expect_error(ErrorKind::kRuntime, {text}, [&] { b.dtype(); });
  expect_error(ErrorKind::kRuntime, {text}, [&] { b.dims(); });
  expect_error(ErrorKind::kRuntime, {text}, [&] { b.nbytes(); });
  expect_error(ErrorKind::kRuntime, {text}, [&] { b.device(); });
  expect_error(ErrorKind::kRuntime, {text}, [&] { b.is_ready(); });
  expect_error(ErrorKind::kRuntime, {text}, [&] { b.await(); });
  expect_error(ErrorKind::kRuntime, {text}, [&] { b.to_host(out, 8); });
  expect_error(ErrorKind::kRuntime, {text}, [&] { b.host_pointer(); });
  expect_error(ErrorKind::kRuntime, {text}, [&] { b.copy_to_device(0); });
  EXPECT_TRUE(b.is_deleted());
}

TEST_F(BufferTest, UseAfterDeleteIsAnError) {
  Buffer b = test::floats(*test::client(), {1, 2});
  b.delete_now();
  b.delete_now();
  EXPECT_TRUE(b);
  expect_unusable(b, "was deleted");
}

TEST_F(BufferTest, UseAfterMoveIsAnError) {
  Buffer a = test::floats(*test::client(), {1, 2});
  Buffer b = std::move(a);
  EXPECT_FALSE(a);
  expect_unusable(a, "is empty");
  expect_unusable(Buffer(), "is empty");
  a.delete_now();
  a = std::move(b);
  EXPECT_EQ(test::read(a), (std::vector<float>{1, 2}));
  Buffer& alias = a;
  a = std::move(alias);
  EXPECT_EQ(test::read(a), (std::vector<float>{1, 2}));
}

TEST_F(BufferTest, ReleaseHandsOverOwnership) {
  const auto c = test::client();
  Buffer a = test::floats(*c, {1, 2});
  const Buffer b(c->state(), a.release());
  EXPECT_FALSE(a);
  EXPECT_EQ(test::read(b), (std::vector<float>{1, 2}));
}

TEST_F(BufferTest, HostPointersNeedTheCapability) {
  expect_error(ErrorKind::kNotImplemented, {"host_visible_buffers"},
               [] { test::floats(*test::client(), {1}).host_pointer(); });
  const Buffer b = test::floats(*visible(), {5, 6});
  b.await();
  EXPECT_EQ(static_cast<const float*>(b.host_pointer())[1], 6);
  EXPECT_EQ(test::read(b), (std::vector<float>{5, 6}));
}

TEST_F(BufferTest, ZeroCopyAliasesAlignedMemoryUntilTheBufferIsGone) {
  const auto c = visible();
  alignas(64) static float data[16] = {1, 2, 3};
  const int64_t dims[] = {16};
  std::atomic<int> done = 0;
  Buffer b = c->from_host_zero_copy(data, DType::F32, dims, 0, [&] { ++done; });
  EXPECT_EQ(b.host_pointer(), data);
  EXPECT_EQ(done, 0);
  b.reset();
  for (int i = 0; i < 1000 && done == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(done, 1);
}

TEST_F(BufferTest, ZeroCopyOfUnalignedMemoryCopiesAndSaysSo) {
  alignas(64) static char data[128];
  const float value = 7;
  std::memcpy(data + 4, &value, sizeof value);
  const int64_t dims[] = {1};
  std::atomic<int> done = 0;
  const Buffer b = test::client()->from_host_zero_copy(data + 4, DType::F32, dims, 0, [&] { ++done; });
  for (int i = 0; i < 1000 && done == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(done, 1);
  EXPECT_EQ(test::read(b), std::vector<float>{7});
}

TEST_F(BufferTest, ZeroCopyDoesNotCallBackWhenItFails) {
  int done = 0;
  const int64_t dims[] = {1};
  EXPECT_THROW(test::client()->from_host_zero_copy(nullptr, DType::F32, dims, 0, [&] { ++done; }), Error);
  EXPECT_THROW(test::client()->from_host_zero_copy(&done, DType::I32, dims, 0, nullptr), Error);
  EXPECT_EQ(done, 0);
}

TEST_F(BufferTest, ZeroCopyWithoutTheCapabilityCopies) {
  const auto c =
      Client::create(Plugin::load(test::plugin_path()), {{"cpu_device_count", int64_t{1}}}, {{"zero_copy", "false"}});
  alignas(64) static float data[16] = {1, 2, 3};
  const int64_t dims[] = {16};
  int done = 0;
  const Buffer b = c->from_host_zero_copy(data, DType::F32, dims, 0, [&] { ++done; });
  EXPECT_EQ(done, 1);
  EXPECT_EQ(test::read(b)[2], 3);
}

TEST_F(BufferTest, CopiesReachEveryDevice) {
  const auto c = test::client(4);
  const Buffer a = test::floats(*c, {1, 2, 3});
  for (int device = 0; device < 4; ++device) {
    const Buffer b = a.copy_to_device(device);
    EXPECT_EQ(b.device(), device);
    EXPECT_EQ(test::read(b), (std::vector<float>{1, 2, 3}));
  }
}

TEST_F(BufferTest, BuffersMayBeUsedFromManyThreads) {
  const auto c = test::client();
  const Buffer shared = test::floats(*c, {1, 2, 3});
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        if (test::read(shared) != std::vector<float>{1, 2, 3}) ++wrong;
        if (test::read(test::floats(*c, {float(i)})) != std::vector<float>{float(i)}) ++wrong;
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(BufferTest, EventsCallBackOnce) {
  const Buffer a = test::floats(*test::client(), {1});
  std::atomic<int> calls = 0;
  {
    const Event e = a.ready_event();
    e.await();
    EXPECT_TRUE(e.is_ready());
    e.on_ready([&](std::exception_ptr failure) {
      EXPECT_EQ(failure, nullptr);
      ++calls;
      throw 1;  // dropped
    });
    expect_error(ErrorKind::kRuntime, {"no callback"}, [&] { e.on_ready(nullptr); });
  }
  for (int i = 0; i < 1000 && calls == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(calls, 1);
}

TEST_F(BufferTest, AnEmptyEventIsDone) {
  const Event none;
  EXPECT_FALSE(none);
  EXPECT_TRUE(none.is_ready());
  EXPECT_NO_THROW(none.await());
  int calls = 0;
  none.on_ready([&](std::exception_ptr failure) { calls += failure == nullptr; });
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace tpj::pjrt
