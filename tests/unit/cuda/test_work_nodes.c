/* SPDX-License-Identifier: MIT */
/* Graphs that are built node by node, and what contexts and streams are asked. Expected results are
 * those of "Graph Management", "Context Management" and "Stream Management" in the CUDA driver API
 * reference. */
#include "driver_test.h"

#include "pretend/cuda/abi/driver_calls.h"

static CUstream stream;
static CUevent events[2];
static CUfunction kernels[2];
static CUgraph graph;
static CUdeviceptr memory;

static int setup(void **state)
{
    CUmodule module;
    (void)state;
    use_device(0);
    assert_int_equal(cuStreamCreate(&stream, 1), CUDA_SUCCESS);
    for (int i = 0; i < 2; i++)
        assert_int_equal(cuEventCreate(&events[i], 2), CUDA_SUCCESS);
    assert_int_equal(cuModuleLoadData(&module, "no image that is known"), CUDA_SUCCESS);
    assert_int_equal(cuModuleGetFunction(&kernels[0], module, "first"), CUDA_SUCCESS);
    assert_int_equal(cuModuleGetFunction(&kernels[1], module, "second"), CUDA_SUCCESS);
    assert_int_equal(cuGraphCreate(&graph, 0), CUDA_SUCCESS);
    assert_int_equal(cuMemAlloc_v2(&memory, 4096), CUDA_SUCCESS);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    cuMemFree_v2(memory);
    cuGraphDestroy(graph);
    for (int i = 0; i < 2; i++)
        cuEventDestroy_v2(events[i]);
    cuStreamDestroy_v2(stream);
    return 0;
}

static void launch(CUgraphExec exec)
{
    assert_int_equal(cuGraphLaunch(exec, stream), CUDA_SUCCESS);
    assert_int_equal(cuStreamSynchronize(stream), CUDA_SUCCESS);
}

static CUgraphExec made_of(CUgraph of)
{
    CUgraphExec exec;
    assert_int_equal(cuGraphInstantiateWithFlags(&exec, of, 0), CUDA_SUCCESS);
    return exec;
}

static int type_of(CUgraphNode node)
{
    int type = -1;
    assert_int_equal(cuGraphNodeGetType(node, &type), CUDA_SUCCESS);
    return type;
}

static void count(void *counter)
{
    ++*(int *)counter;
}

static void count_tens(void *counter)
{
    *(int *)counter += 10;
}

/* ---- nodes ---- */

static void test_a_kernels_parameters_are_kept_but_for_its_arguments(void **state)
{
    CUgraphNode node;
    void *arguments[] = {&memory};
    CUDA_KERNEL_NODE_PARAMS params = {.func = kernels[0],
                                      .gridDimX = 7,
                                      .gridDimY = 1,
                                      .gridDimZ = 1,
                                      .blockDimX = 32,
                                      .blockDimY = 1,
                                      .blockDimZ = 1,
                                      .sharedMemBytes = 64,
                                      .kernelParams = arguments};
    CUDA_KERNEL_NODE_PARAMS read = {0};
    (void)state;
    assert_int_equal(cuGraphAddKernelNode_v2(&node, graph, NULL, 0, &params), CUDA_SUCCESS);
    assert_int_equal(type_of(node), CU_GRAPH_NODE_TYPE_KERNEL);
    assert_int_equal(cuGraphKernelNodeGetParams_v2(node, &read), CUDA_SUCCESS);
    assert_ptr_equal(read.func, kernels[0]);
    assert_int_equal(read.gridDimX, 7);
    assert_int_equal(read.sharedMemBytes, 64);
    params.func = kernels[1];
    params.gridDimX = 9;
    assert_int_equal(cuGraphKernelNodeSetParams_v2(node, &params), CUDA_SUCCESS);
    assert_int_equal(cuGraphKernelNodeGetParams_v2(node, &read), CUDA_SUCCESS);
    assert_ptr_equal(read.func, kernels[1]);
    assert_int_equal(read.gridDimX, 9);
}

/* A program for CUDA 11 has the form without the last two members, and nothing behind it is
 * written. */
static void test_the_first_form_of_a_kernels_parameters_ends_before_the_context(void **state)
{
    CUgraphNode node;
    CUDA_KERNEL_NODE_PARAMS params = {.func = kernels[0], .gridDimX = 3, .blockDimX = 1};
    CUDA_KERNEL_NODE_PARAMS read = {.ctx = (CUcontext)&params};
    (void)state;
    assert_int_equal(cuGraphAddKernelNode(&node, graph, NULL, 0, &params), CUDA_SUCCESS);
    assert_int_equal(cuGraphKernelNodeGetParams(node, &read), CUDA_SUCCESS);
    assert_int_equal(read.gridDimX, 3);
    assert_ptr_equal(read.ctx, (CUcontext)&params);
    params.gridDimX = 4;
    assert_int_equal(cuGraphKernelNodeSetParams(node, &params), CUDA_SUCCESS);
    assert_int_equal(cuGraphKernelNodeGetParams(node, &read), CUDA_SUCCESS);
    assert_int_equal(read.gridDimX, 4);
}

static void test_host_nodes_run_each_time_and_can_be_changed_in_one_graph_alone(void **state)
{
    int counter = 0;
    CUgraphNode node;
    CUDA_HOST_NODE_PARAMS params = {count, &counter};
    CUDA_HOST_NODE_PARAMS read = {0};
    (void)state;
    assert_int_equal(cuGraphAddHostNode(&node, graph, NULL, 0, &params), CUDA_SUCCESS);
    CUgraphExec exec = made_of(graph);
    CUgraphExec second = made_of(graph);
    launch(exec);
    launch(exec);
    assert_int_equal(counter, 2);
    params.fn = count_tens;
    assert_int_equal(cuGraphExecHostNodeSetParams(exec, node, &params), CUDA_SUCCESS);
    launch(exec);
    assert_int_equal(counter, 12);
    launch(second);
    assert_int_equal(counter, 13);
    assert_int_equal(cuGraphHostNodeGetParams(node, &read), CUDA_SUCCESS);
    assert_ptr_equal(read.fn, count);
    assert_int_equal(cuGraphHostNodeSetParams(node, &params), CUDA_SUCCESS);
    launch(second); /* was made before */
    assert_int_equal(counter, 14);
    CUgraphExec third = made_of(graph);
    launch(third);
    assert_int_equal(counter, 24);
    cuGraphExecDestroy(exec);
    cuGraphExecDestroy(second);
    cuGraphExecDestroy(third);
}

static void test_a_host_node_needs_a_function(void **state)
{
    CUgraphNode node;
    CUDA_HOST_NODE_PARAMS params = {NULL, NULL};
    (void)state;
    assert_int_equal(cuGraphAddHostNode(&node, graph, NULL, 0, &params), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuGraphAddHostNode(&node, graph, NULL, 0, NULL), CUDA_ERROR_INVALID_VALUE);
    params = (CUDA_HOST_NODE_PARAMS){count, NULL};
    assert_int_equal(cuGraphAddHostNode(&node, graph, NULL, 0, &params), CUDA_SUCCESS);
    CUgraphExec exec = made_of(graph);
    params.fn = NULL;
    assert_int_equal(cuGraphHostNodeSetParams(node, &params), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuGraphExecHostNodeSetParams(exec, node, &params), CUDA_ERROR_INVALID_VALUE);
    CUgraphNodeParams any = {.type = CU_GRAPH_NODE_TYPE_HOST};
    assert_int_equal(cuGraphNodeSetParams(node, &any), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuGraphAddNode(&node, graph, NULL, 0, &any), CUDA_ERROR_INVALID_VALUE);
    cuGraphExecDestroy(exec);
}

static void test_a_set_node_has_what_it_was_given(void **state)
{
    CUgraphNode node;
    CUDA_MEMSET_NODE_PARAMS params = {
        .dst = memory, .value = 7, .elementSize = 4, .width = 1024, .height = 1};
    CUDA_MEMSET_NODE_PARAMS read = {0};
    (void)state;
    assert_int_equal(cuGraphAddMemsetNode(&node, graph, NULL, 0, &params, NULL), CUDA_SUCCESS);
    assert_int_equal(cuGraphMemsetNodeGetParams(node, &read), CUDA_SUCCESS);
    assert_memory_equal(&read, &params, sizeof params);
    params.value = 8;
    assert_int_equal(cuGraphMemsetNodeSetParams(node, &params), CUDA_SUCCESS);
    assert_int_equal(cuGraphMemsetNodeGetParams(node, &read), CUDA_SUCCESS);
    assert_int_equal(read.value, 8);
    CUgraphExec exec = made_of(graph);
    assert_int_equal(cuGraphExecMemsetNodeSetParams(exec, node, &params, NULL), CUDA_SUCCESS);
    cuGraphExecDestroy(exec);
}

/* The 200 bytes of CUDA_MEMCPY3D. By cuGraphAddNode they stand 16 bytes into the parameters. */
static void test_a_copy_node_is_the_same_by_either_call(void **state)
{
    CUgraphNode one, other;
    CUDA_COPY_NODE_PARAMS copy, read;
    CUgraphNodeParams any = {.type = CU_GRAPH_NODE_TYPE_MEMCPY};
    (void)state;
    for (size_t i = 0; i < sizeof copy.bytes; i++)
        copy.bytes[i] = (unsigned char)i;
    memcpy(any.u.bytes + 16, copy.bytes, sizeof copy.bytes);
    assert_int_equal(cuGraphAddMemcpyNode(&one, graph, NULL, 0, &copy, NULL), CUDA_SUCCESS);
    assert_int_equal(cuGraphAddNode(&other, graph, NULL, 0, &any), CUDA_SUCCESS);
    assert_int_equal(type_of(other), CU_GRAPH_NODE_TYPE_MEMCPY);
    assert_int_equal(cuGraphMemcpyNodeGetParams(one, &read), CUDA_SUCCESS);
    assert_memory_equal(&read, &copy, sizeof copy);
    assert_int_equal(cuGraphMemcpyNodeGetParams(other, &read), CUDA_SUCCESS);
    assert_memory_equal(&read, &copy, sizeof copy);
    any.u.bytes[16] = 99;
    assert_int_equal(cuGraphNodeSetParams(one, &any), CUDA_SUCCESS);
    assert_int_equal(cuGraphMemcpyNodeGetParams(one, &read), CUDA_SUCCESS);
    assert_int_equal(read.bytes[0], 99);
    assert_int_equal(read.bytes[1], 1);
}

static void test_event_nodes_have_an_event_that_can_be_changed(void **state)
{
    CUgraphNode record, wait;
    CUevent read = NULL;
    (void)state;
    assert_int_equal(cuGraphAddEventRecordNode(&record, graph, NULL, 0, events[0]), CUDA_SUCCESS);
    assert_int_equal(cuGraphAddEventWaitNode(&wait, graph, &record, 1, events[0]), CUDA_SUCCESS);
    assert_int_equal(cuGraphEventRecordNodeGetEvent(record, &read), CUDA_SUCCESS);
    assert_ptr_equal(read, events[0]);
    assert_int_equal(cuGraphEventRecordNodeSetEvent(record, events[1]), CUDA_SUCCESS);
    assert_int_equal(cuGraphEventRecordNodeGetEvent(record, &read), CUDA_SUCCESS);
    assert_ptr_equal(read, events[1]);
    assert_int_equal(cuGraphEventWaitNodeSetEvent(wait, events[1]), CUDA_SUCCESS);
    assert_int_equal(cuGraphEventWaitNodeGetEvent(wait, &read), CUDA_SUCCESS);
    assert_ptr_equal(read, events[1]);
    CUgraphExec exec = made_of(graph);
    assert_int_equal(cuGraphExecEventRecordNodeSetEvent(exec, record, events[0]), CUDA_SUCCESS);
    assert_int_equal(cuGraphExecEventWaitNodeSetEvent(exec, wait, events[0]), CUDA_SUCCESS);
    launch(exec);
    cuGraphExecDestroy(exec);
}

static void test_what_is_no_event_is_not_taken_for_one(void **state)
{
    CUgraphNode node;
    int nothing = 0;
    (void)state;
    assert_int_equal(cuGraphAddEventRecordNode(&node, graph, NULL, 0, NULL),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuGraphAddEventWaitNode(&node, graph, NULL, 0, (CUevent)&nothing),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuGraphAddEventRecordNode(&node, graph, NULL, 0, events[0]), CUDA_SUCCESS);
    assert_int_equal(cuGraphEventRecordNodeSetEvent(node, NULL), CUDA_ERROR_INVALID_VALUE);
    CUgraphExec exec = made_of(graph);
    assert_int_equal(cuGraphExecEventRecordNodeSetEvent(exec, node, NULL),
                     CUDA_ERROR_INVALID_VALUE);
    launch(exec);
    cuGraphExecDestroy(exec);
}

/* The child is a copy: what is done to the original afterwards does not reach it. */
static void test_a_child_graph_is_a_copy_that_runs_with_its_parent(void **state)
{
    int counter = 0;
    CUgraph child, inside;
    CUgraphNode node, part;
    CUDA_HOST_NODE_PARAMS params = {count, &counter};
    size_t n = 0;
    (void)state;
    assert_int_equal(cuGraphCreate(&child, 0), CUDA_SUCCESS);
    assert_int_equal(cuGraphAddHostNode(&node, child, NULL, 0, &params), CUDA_SUCCESS);
    assert_int_equal(cuGraphAddChildGraphNode(&part, graph, NULL, 0, child), CUDA_SUCCESS);
    assert_int_equal(cuGraphAddHostNode(&node, child, NULL, 0, &params), CUDA_SUCCESS);
    assert_int_equal(cuGraphChildGraphNodeGetGraph(part, &inside), CUDA_SUCCESS);
    assert_ptr_not_equal(inside, child);
    assert_int_equal(cuGraphGetNodes(inside, NULL, &n), CUDA_SUCCESS);
    assert_int_equal(n, 1);
    CUgraphExec exec = made_of(graph);
    launch(exec);
    assert_int_equal(counter, 1);
    assert_int_equal(cuGraphAddChildGraphNode(&part, graph, NULL, 0, graph),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuGraphChildGraphNodeGetGraph(node, &inside), CUDA_ERROR_INVALID_VALUE);
    cuGraphExecDestroy(exec);
    cuGraphDestroy(child);
}

static void test_kernels_copies_and_sets_can_be_left_out_of_a_graph(void **state)
{
    CUgraphNode set, host;
    CUDA_MEMSET_NODE_PARAMS params = {
        .dst = memory, .value = 1, .elementSize = 4, .width = 4, .height = 1};
    CUDA_HOST_NODE_PARAMS call = {count, &(int){0}};
    unsigned is_enabled = 7;
    (void)state;
    assert_int_equal(cuGraphAddMemsetNode(&set, graph, NULL, 0, &params, NULL), CUDA_SUCCESS);
    assert_int_equal(cuGraphAddHostNode(&host, graph, NULL, 0, &call), CUDA_SUCCESS);
    CUgraphExec exec = made_of(graph);
    assert_int_equal(cuGraphNodeGetEnabled(exec, set, &is_enabled), CUDA_SUCCESS);
    assert_int_equal(is_enabled, 1);
    assert_int_equal(cuGraphNodeSetEnabled(exec, set, 0), CUDA_SUCCESS);
    assert_int_equal(cuGraphNodeGetEnabled(exec, set, &is_enabled), CUDA_SUCCESS);
    assert_int_equal(is_enabled, 0);
    assert_int_equal(cuGraphNodeSetEnabled(exec, host, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuGraphNodeGetEnabled(exec, set, NULL), CUDA_ERROR_INVALID_VALUE);
    launch(exec);
    cuGraphExecDestroy(exec);
}

static void test_attributes_of_kernels_are_kept_and_copied(void **state)
{
    CUgraphNode one, other, empty;
    CUDA_KERNEL_NODE_PARAMS params = {.func = kernels[0], .gridDimX = 1, .blockDimX = 1};
    CUlaunchAttributeValue value = {.priority = -3};
    (void)state;
    assert_int_equal(cuGraphAddKernelNode_v2(&one, graph, NULL, 0, &params), CUDA_SUCCESS);
    assert_int_equal(cuGraphAddKernelNode_v2(&other, graph, NULL, 0, &params), CUDA_SUCCESS);
    assert_int_equal(cuGraphAddEmptyNode(&empty, graph, NULL, 0), CUDA_SUCCESS);
    assert_int_equal(cuGraphKernelNodeSetAttribute(one, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value),
                     CUDA_SUCCESS);
    assert_int_equal(cuGraphKernelNodeCopyAttributes(other, one), CUDA_SUCCESS);
    value.priority = 0;
    assert_int_equal(cuGraphKernelNodeGetAttribute(other, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value),
                     CUDA_SUCCESS);
    assert_int_equal(value.priority, -3);
    assert_int_equal(cuGraphKernelNodeGetAttribute(empty, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuGraphKernelNodeCopyAttributes(empty, one), CUDA_ERROR_INVALID_VALUE);
}

/* Asks of a node of another type, of another graph, or of none. */
static void test_wrong_nodes_are_refused(void **state)
{
    CUgraph second;
    CUgraphNode node, empty;
    CUDA_MEMSET_NODE_PARAMS set = {0};
    CUDA_HOST_NODE_PARAMS host = {count, NULL};
    CUgraphNodeParams any = {.type = CU_GRAPH_NODE_TYPE_MEMSET};
    (void)state;
    assert_int_equal(cuGraphAddEmptyNode(&empty, graph, NULL, 0), CUDA_SUCCESS);
    assert_int_equal(cuGraphMemsetNodeGetParams(empty, &set), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuGraphHostNodeSetParams(empty, &host), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuGraphNodeSetParams(empty, &any), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuGraphNodeSetParams(empty, NULL), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuGraphAddNode(&node, graph, NULL, 0, NULL), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuGraphCreate(&second, 0), CUDA_SUCCESS);
    assert_int_equal(cuGraphAddEmptyNode(&node, second, &empty, 1), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuGraphAddEmptyNode(&node, second, NULL, 1), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuGraphAddEmptyNode(NULL, second, NULL, 0), CUDA_ERROR_INVALID_VALUE);
    CUgraphExec exec = made_of(second);
    assert_int_equal(cuGraphExecHostNodeSetParams(exec, empty, &host), CUDA_ERROR_INVALID_VALUE);
    any.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    assert_int_equal(cuGraphAddNode(&node, second, NULL, 0, &any), CUDA_ERROR_NOT_SUPPORTED);
    cuGraphExecDestroy(exec);
    cuGraphDestroy(second);
}

/* ---- contexts and streams ---- */

/* The numbers that cuCtxGetLimit() gives of a new context: 1 KiB of stack for a thread, 1 MiB for
 * printf(), 8 MiB for malloc(). */
static void test_limits_of_a_context_begin_as_documented_and_are_kept(void **state)
{
    size_t value = 0;
    (void)state;
    assert_int_equal(cuCtxGetLimit(&value, 0), CUDA_SUCCESS);
    assert_int_equal(value, 1024);
    assert_int_equal(cuCtxGetLimit(&value, 1), CUDA_SUCCESS);
    assert_int_equal(value, 1 << 20);
    assert_int_equal(cuCtxGetLimit(&value, 2), CUDA_SUCCESS);
    assert_int_equal(value, 8 << 20);
    assert_int_equal(cuCtxSetLimit(2, 64 << 20), CUDA_SUCCESS);
    assert_int_equal(cuCtxGetLimit(&value, 2), CUDA_SUCCESS);
    assert_int_equal(value, 64 << 20);
    assert_int_equal(cuCtxSetLimit(2, 8 << 20), CUDA_SUCCESS);
    assert_int_equal(cuCtxGetLimit(&value, 99), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuCtxGetLimit(NULL, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuCtxSetLimit(-1, 0), CUDA_ERROR_INVALID_VALUE);
}

/* Preferences of caches are 0 to 3. */
static void test_a_context_keeps_its_preferences(void **state)
{
    int config = -1;
    unsigned long long id = 0;
    (void)state;
    assert_int_equal(cuCtxSetCacheConfig(3), CUDA_SUCCESS);
    assert_int_equal(cuCtxGetCacheConfig(&config), CUDA_SUCCESS);
    assert_int_equal(config, 3);
    assert_int_equal(cuCtxSetCacheConfig(4), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuCtxGetCacheConfig(NULL), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuCtxGetId(NULL, &id), CUDA_SUCCESS);
    assert_int_equal(cuCtxGetId(NULL, NULL), CUDA_ERROR_INVALID_VALUE);
}

static void test_without_a_context_there_is_nothing_to_ask(void **state)
{
    size_t value;
    int config;
    unsigned flags;
    (void)state;
    assert_int_equal(cuCtxSetCurrent(NULL), CUDA_SUCCESS);
    assert_int_equal(cuCtxGetLimit(&value, 0), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(cuCtxGetCacheConfig(&config), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(cuCtxGetFlags(&flags), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
    use_device(0);
}

static void test_a_stream_says_what_it_was_made_with(void **state)
{
    CUstream second;
    CUcontext context = NULL;
    CUdevice device = -1;
    unsigned flags = 0;
    int priority = 1;
    unsigned long long ids[2] = {0, 0};
    (void)state;
    assert_int_equal(cuStreamCreateWithPriority(&second, 0, -1), CUDA_SUCCESS);
    assert_int_equal(cuStreamGetFlags(stream, &flags), CUDA_SUCCESS);
    assert_int_equal(flags, 1); /* CU_STREAM_NON_BLOCKING */
    assert_int_equal(cuStreamGetFlags(second, &flags), CUDA_SUCCESS);
    assert_int_equal(flags, 0);
    assert_int_equal(cuStreamGetPriority(second, &priority), CUDA_SUCCESS);
    assert_int_equal(priority, -1);
    assert_int_equal(cuStreamGetDevice(second, &device), CUDA_SUCCESS);
    assert_int_equal(device, 0);
    assert_int_equal(cuStreamGetCtx(second, &context), CUDA_SUCCESS);
    assert_non_null(context);
    assert_int_equal(cuStreamGetId(stream, &ids[0]), CUDA_SUCCESS);
    assert_int_equal(cuStreamGetId(second, &ids[1]), CUDA_SUCCESS);
    assert_int_not_equal(ids[0], ids[1]);
    assert_int_equal(cuStreamGetFlags(second, NULL), CUDA_ERROR_INVALID_VALUE);
    cuStreamDestroy_v2(second);
}

/* CU_LAUNCH_ATTRIBUTE_PRIORITY is the stream's own priority. */
static void test_attributes_of_streams_are_kept_and_copied(void **state)
{
    CUstream second;
    CUlaunchAttributeValue value = {.words = {7, 8}};
    int priority = 0;
    (void)state;
    assert_int_equal(cuStreamCreate(&second, 0), CUDA_SUCCESS);
    assert_int_equal(cuStreamSetAttribute(stream, 1, &value), CUDA_SUCCESS);
    value = (CUlaunchAttributeValue){.priority = -2};
    assert_int_equal(cuStreamSetAttribute(stream, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value),
                     CUDA_SUCCESS);
    assert_int_equal(cuStreamCopyAttributes(second, stream), CUDA_SUCCESS);
    assert_int_equal(cuStreamGetAttribute(second, 1, &value), CUDA_SUCCESS);
    assert_int_equal(value.words[0], 7);
    assert_int_equal(value.words[1], 8);
    assert_int_equal(cuStreamGetPriority(second, &priority), CUDA_SUCCESS);
    assert_int_equal(priority, -2);
    assert_int_equal(cuStreamSetAttribute(second, 0, &value), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuStreamGetAttribute(second, 99, &value), CUDA_ERROR_INVALID_VALUE);
    cuStreamDestroy_v2(second);
}

static void test_functions_run_in_the_order_of_their_stream(void **state)
{
    int counter = 0;
    (void)state;
    assert_int_equal(cuLaunchHostFunc(stream, count, &counter), CUDA_SUCCESS);
    assert_int_equal(cuLaunchHostFunc_v2(stream, count_tens, &counter, 0), CUDA_SUCCESS);
    assert_int_equal(cuStreamSynchronize(stream), CUDA_SUCCESS);
    assert_int_equal(counter, 11);
    assert_int_equal(cuLaunchHostFunc(stream, NULL, &counter), CUDA_ERROR_INVALID_VALUE);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_kernels_parameters_are_kept_but_for_its_arguments),
        TEST(test_the_first_form_of_a_kernels_parameters_ends_before_the_context),
        TEST(test_host_nodes_run_each_time_and_can_be_changed_in_one_graph_alone),
        TEST(test_a_host_node_needs_a_function),
        TEST(test_a_set_node_has_what_it_was_given),
        TEST(test_a_copy_node_is_the_same_by_either_call),
        TEST(test_event_nodes_have_an_event_that_can_be_changed),
        TEST(test_what_is_no_event_is_not_taken_for_one),
        TEST(test_a_child_graph_is_a_copy_that_runs_with_its_parent),
        TEST(test_kernels_copies_and_sets_can_be_left_out_of_a_graph),
        TEST(test_attributes_of_kernels_are_kept_and_copied),
        TEST(test_wrong_nodes_are_refused),
        TEST(test_limits_of_a_context_begin_as_documented_and_are_kept),
        TEST(test_a_context_keeps_its_preferences),
        TEST(test_without_a_context_there_is_nothing_to_ask),
        TEST(test_a_stream_says_what_it_was_made_with),
        TEST(test_attributes_of_streams_are_kept_and_copied),
        TEST(test_functions_run_in_the_order_of_their_stream),
    };
    return cmocka_run_group_tests(tests, begin_rehearsal, end_rehearsal);
}
