/* SPDX-License-Identifier: MIT */
/* Stream capture and graphs. Expected errors are those of "Stream Management" and "Graph
 * Management" in the CUDA driver API reference and of "CUDA Graphs" in the programming guide. */
#include "driver_test.h"

#include <pthread.h>

#include "pretend/cuda/abi/driver_calls.h"

CUresult cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream stream);
CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream);
CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *copy, CUstream stream);

#define GLOBAL  CU_STREAM_CAPTURE_MODE_GLOBAL
#define RELAXED CU_STREAM_CAPTURE_MODE_RELAXED

static CUstream one, other; /* both non-blocking */
static CUevent event;
static CUfunction kernel;

static int setup(void **state)
{
    CUmodule module;
    (void)state;
    use_device(0);
    assert_int_equal(cuStreamCreate(&one, 1), CUDA_SUCCESS);
    assert_int_equal(cuStreamCreate(&other, 1), CUDA_SUCCESS);
    assert_int_equal(cuEventCreate(&event, 2), CUDA_SUCCESS);
    assert_int_equal(cuModuleLoadData(&module, "no image that is known"), CUDA_SUCCESS);
    assert_int_equal(cuModuleGetFunction(&kernel, module, "kernel"), CUDA_SUCCESS);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    cuStreamDestroy_v2(one);
    cuStreamDestroy_v2(other);
    cuEventDestroy_v2(event);
    return 0;
}

static CUresult launch(CUstream stream)
{
    return cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL);
}

static size_t count_nodes(CUgraph graph)
{
    size_t n = 0;
    assert_int_equal(cuGraphGetNodes(graph, NULL, &n), CUDA_SUCCESS);
    return n;
}

static void test_captured_work_becomes_nodes_that_wait_for_each_other(void **state)
{
    CUgraph graph;
    CUgraphNode nodes[4], from[4], to[4];
    size_t n = 4, n_edges = 4, n_roots = 0;
    int type;
    (void)state;
    assert_int_equal(cuStreamBeginCapture_v2(one, GLOBAL), CUDA_SUCCESS);
    assert_int_equal(launch(one), CUDA_SUCCESS);
    assert_int_equal(launch(one), CUDA_SUCCESS);
    assert_int_equal(cuStreamEndCapture(one, &graph), CUDA_SUCCESS);
    assert_int_equal(cuGraphGetNodes(graph, nodes, &n), CUDA_SUCCESS);
    assert_int_equal(n, 2);
    assert_null(nodes[2]);
    assert_int_equal(cuGraphNodeGetType(nodes[0], &type), CUDA_SUCCESS);
    assert_int_equal(type, CU_GRAPH_NODE_TYPE_KERNEL);
    assert_int_equal(cuGraphGetEdges(graph, from, to, &n_edges), CUDA_SUCCESS);
    assert_int_equal(n_edges, 1);
    assert_ptr_equal(from[0], nodes[0]);
    assert_ptr_equal(to[0], nodes[1]);
    assert_int_equal(cuGraphGetRootNodes(graph, NULL, &n_roots), CUDA_SUCCESS);
    assert_int_equal(n_roots, 1);
    assert_int_equal(cuGraphDestroy(graph), CUDA_SUCCESS);
    assert_int_equal(cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE);
}

static void fork_to_other(void)
{
    assert_int_equal(cuEventRecord(event, one), CUDA_SUCCESS);
    assert_int_equal(cuStreamWaitEvent(other, event, 0), CUDA_SUCCESS);
    assert_int_equal(launch(other), CUDA_SUCCESS);
}

static void test_a_forked_stream_takes_part_and_must_join(void **state)
{
    CUgraph graph;
    CUstreamCaptureStatus status;
    CUevent back;
    (void)state;
    assert_int_equal(cuEventCreate(&back, 2), CUDA_SUCCESS);
    assert_int_equal(cuStreamBeginCapture_v2(one, GLOBAL), CUDA_SUCCESS);
    fork_to_other();
    assert_int_equal(cuStreamIsCapturing(other, &status), CUDA_SUCCESS);
    assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    assert_int_equal(cuStreamEndCapture(other, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    assert_int_equal(cuEventRecord(back, other), CUDA_SUCCESS);
    assert_int_equal(cuStreamWaitEvent(one, back, 0), CUDA_SUCCESS);
    assert_int_equal(cuStreamEndCapture(one, &graph), CUDA_SUCCESS);
    assert_int_equal(cuStreamIsCapturing(other, &status), CUDA_SUCCESS);
    assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_NONE);
    assert_int_equal(count_nodes(graph), 1);
    assert_int_equal(cuEventQuery(back), CUDA_ERROR_CAPTURED_EVENT);
    assert_int_equal(cuGraphDestroy(graph), CUDA_SUCCESS);
    assert_int_equal(cuEventDestroy_v2(back), CUDA_SUCCESS);
}

static void test_work_that_did_not_join_fails_the_capture(void **state)
{
    CUgraph graph = (CUgraph)1;
    (void)state;
    assert_int_equal(cuStreamBeginCapture_v2(one, GLOBAL), CUDA_SUCCESS);
    fork_to_other();
    assert_int_equal(cuStreamEndCapture(one, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    assert_null(graph);
    assert_int_equal(cuStreamEndCapture(one, &graph), CUDA_ERROR_ILLEGAL_STATE);
    assert_int_equal(launch(other), CUDA_SUCCESS);
}

static void test_waiting_for_a_captured_stream_spoils_the_capture(void **state)
{
    CUgraph graph;
    (void)state;
    assert_int_equal(cuStreamBeginCapture_v2(one, RELAXED), CUDA_SUCCESS);
    assert_int_equal(cuStreamBeginCapture_v2(one, RELAXED), CUDA_ERROR_ILLEGAL_STATE);
    assert_int_equal(cuStreamSynchronize(one), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_int_equal(launch(one), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_int_equal(cuStreamEndCapture(one, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_int_equal(launch(one), CUDA_SUCCESS);
    assert_int_equal(cuStreamBeginCapture_v2(one, RELAXED), CUDA_SUCCESS);
    assert_int_equal(cuCtxSynchronize(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_int_equal(cuStreamEndCapture(one, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

static void test_the_default_stream_cannot_be_captured_nor_wait_for_a_capture(void **state)
{
    CUstream blocking;
    CUgraph graph;
    (void)state;
    assert_int_equal(cuStreamBeginCapture_v2(NULL, GLOBAL), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_int_equal(cuStreamCreate(&blocking, 0), CUDA_SUCCESS);
    assert_int_equal(cuStreamBeginCapture_v2(one, RELAXED), CUDA_SUCCESS);
    assert_int_equal(launch(NULL), CUDA_SUCCESS);
    assert_int_equal(cuStreamEndCapture(one, &graph), CUDA_SUCCESS);
    assert_int_equal(cuGraphDestroy(graph), CUDA_SUCCESS);
    assert_int_equal(cuStreamBeginCapture_v2(blocking, RELAXED), CUDA_SUCCESS);
    assert_int_equal(launch(NULL), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    assert_int_equal(cuStreamEndCapture(blocking, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_int_equal(cuStreamDestroy_v2(blocking), CUDA_SUCCESS);
}

static void test_captures_cannot_merge_nor_wait_for_what_was_not_captured(void **state)
{
    CUgraph graph;
    (void)state;
    assert_int_equal(cuStreamBeginCapture_v2(one, RELAXED), CUDA_SUCCESS);
    assert_int_equal(cuStreamBeginCapture_v2(other, RELAXED), CUDA_SUCCESS);
    assert_int_equal(cuEventRecord(event, one), CUDA_SUCCESS);
    assert_int_equal(cuStreamWaitEvent(other, event, 0), CUDA_ERROR_STREAM_CAPTURE_MERGE);
    assert_int_equal(cuStreamEndCapture(one, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_int_equal(cuStreamEndCapture(other, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_int_equal(cuEventRecord(event, other), CUDA_SUCCESS);
    assert_int_equal(cuStreamBeginCapture_v2(one, RELAXED), CUDA_SUCCESS);
    assert_int_equal(cuStreamWaitEvent(one, event, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    assert_int_equal(cuStreamEndCapture(one, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

static void test_unsafe_calls_are_forbidden_unless_the_thread_is_relaxed(void **state)
{
    CUstreamCaptureMode mode = RELAXED;
    CUgraph graph;
    (void)state;
    assert_int_equal(cuStreamBeginCapture_v2(one, GLOBAL), CUDA_SUCCESS);
    assert_int_equal(cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
    assert_int_equal(mode, GLOBAL);
    assert_int_equal(cuEventQuery(event), CUDA_SUCCESS);
    assert_int_equal(cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
    assert_int_equal(mode, RELAXED);
    assert_int_equal(cuEventQuery(event), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_int_equal(cuStreamEndCapture(one, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

static void *end_elsewhere(void *data)
{
    CUresult *results = data;
    CUgraph graph;
    use_device(0);
    results[0] = cuStreamEndCapture(one, &graph);
    results[1] = cuEventQuery(event); /* of another thread's capture in global mode */
    return NULL;
}

static void test_another_thread_cannot_end_a_capture(void **state)
{
    CUresult results[2];
    CUgraph graph;
    pthread_t thread;
    (void)state;
    assert_int_equal(cuStreamBeginCapture_v2(one, GLOBAL), CUDA_SUCCESS);
    assert_int_equal(pthread_create(&thread, NULL, end_elsewhere, results), 0);
    pthread_join(thread, NULL);
    assert_int_equal(results[0], CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    assert_int_equal(results[1], CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_int_equal(cuStreamEndCapture(one, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

static void test_a_stream_destroyed_in_its_capture_leaves_none_behind(void **state)
{
    CUstream brief;
    (void)state;
    assert_int_equal(cuStreamCreate(&brief, 1), CUDA_SUCCESS);
    assert_int_equal(cuStreamBeginCapture_v2(brief, GLOBAL), CUDA_SUCCESS);
    assert_int_equal(cuStreamDestroy_v2(brief), CUDA_SUCCESS);
    assert_int_equal(cuEventQuery(event), CUDA_SUCCESS);
}

static void count(void *data)
{
    ++*(int *)data;
}

static void test_a_launched_graph_calls_its_host_functions_in_order(void **state)
{
    CUgraph graph;
    CUgraphExec exec;
    int calls = 0;
    (void)state;
    assert_int_equal(cuStreamBeginCapture_v2(one, GLOBAL), CUDA_SUCCESS);
    assert_int_equal(cuLaunchHostFunc(one, count, &calls), CUDA_SUCCESS);
    assert_int_equal(cuStreamEndCapture(one, &graph), CUDA_SUCCESS);
    assert_int_equal(calls, 0);
    assert_int_equal(cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
    assert_int_equal(cuGraphDestroy(graph), CUDA_SUCCESS);
    assert_int_equal(cuGraphLaunch(exec, one), CUDA_SUCCESS);
    assert_int_equal(cuGraphLaunch(exec, one), CUDA_SUCCESS);
    assert_int_equal(calls, 2);
    assert_int_equal(cuLaunchHostFunc(one, count, &calls), CUDA_SUCCESS);
    assert_int_equal(calls, 3);
    assert_int_equal(cuGraphExecDestroy(exec), CUDA_SUCCESS);
    assert_int_equal(cuGraphLaunch(exec, one), CUDA_ERROR_INVALID_VALUE);
}

static void test_a_graph_with_a_circle_is_not_instantiated(void **state)
{
    CUDA_GRAPH_INSTANTIATE_PARAMS params = {0};
    CUgraph graph;
    CUgraphNode a, b;
    CUgraphExec exec;
    (void)state;
    assert_int_equal(cuGraphCreate(&graph, 0), CUDA_SUCCESS);
    assert_int_equal(cuGraphAddEmptyNode(&a, graph, NULL, 0), CUDA_SUCCESS);
    assert_int_equal(cuGraphAddEmptyNode(&b, graph, &a, 1), CUDA_SUCCESS);
    assert_int_equal(cuGraphAddDependencies(graph, &a, &b, 1), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuGraphAddDependencies(graph, &b, &a, 1), CUDA_SUCCESS);
    assert_int_equal(cuGraphInstantiateWithParams(&exec, graph, &params), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(params.result_out, CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE);
    assert_int_equal(cuGraphRemoveDependencies(graph, &b, &a, 1), CUDA_SUCCESS);
    assert_int_equal(cuGraphInstantiateWithParams(&exec, graph, &params), CUDA_SUCCESS);
    assert_int_equal(cuGraphExecDestroy(exec), CUDA_SUCCESS);
    assert_int_equal(cuGraphDestroy(graph), CUDA_SUCCESS);
}

static void test_an_update_wants_the_same_shape(void **state)
{
    CUgraph graph, more;
    CUgraphNode node;
    CUgraphExec exec;
    CUgraphExecUpdateResultInfo info;
    (void)state;
    assert_int_equal(cuGraphCreate(&graph, 0), CUDA_SUCCESS);
    assert_int_equal(cuGraphAddEmptyNode(&node, graph, NULL, 0), CUDA_SUCCESS);
    assert_int_equal(cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
    assert_int_equal(cuGraphClone(&more, graph), CUDA_SUCCESS);
    assert_int_equal(cuGraphExecUpdate_v2(exec, more, &info), CUDA_SUCCESS);
    assert_int_equal(info.result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
    assert_int_equal(cuGraphAddEmptyNode(&node, more, NULL, 0), CUDA_SUCCESS);
    assert_int_equal(cuGraphExecUpdate_v2(exec, more, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    assert_int_equal(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    assert_int_equal(cuGraphExecDestroy(exec), CUDA_SUCCESS);
    assert_int_equal(cuGraphDestroy(more), CUDA_SUCCESS);
    assert_int_equal(cuGraphDestroy(graph), CUDA_SUCCESS);
}

static void test_a_user_object_lives_until_the_last_graph_that_has_it(void **state)
{
    CUgraph graph, copy;
    CUuserObject object;
    int destroyed = 0;
    (void)state;
    assert_int_equal(cuGraphCreate(&graph, 0), CUDA_SUCCESS);
    assert_int_equal(cuUserObjectCreate(&object, &destroyed, count, 1, 1), CUDA_SUCCESS);
    assert_int_equal(cuGraphRetainUserObject(graph, object, 1, 1), CUDA_SUCCESS);
    assert_int_equal(cuGraphClone(&copy, graph), CUDA_SUCCESS);
    assert_int_equal(cuGraphDestroy(graph), CUDA_SUCCESS);
    assert_int_equal(destroyed, 0);
    assert_int_equal(cuGraphDestroy(copy), CUDA_SUCCESS);
    assert_int_equal(destroyed, 1);
}

/* 3 MiB are two pages of 2 MiB. */
static void test_memory_of_a_graph_is_taken_by_its_launch(void **state)
{
    uint64_t before = used_bytes(0);
    CUdeviceptr pointer;
    CUgraph graph;
    CUgraphExec exec;
    (void)state;
    assert_int_equal(cuStreamBeginCapture_v2(one, GLOBAL), CUDA_SUCCESS);
    assert_int_equal(cuMemAllocAsync(&pointer, 3 * MIB, one), CUDA_SUCCESS);
    assert_int_equal(cuStreamEndCapture(one, &graph), CUDA_SUCCESS);
    assert_int_equal(count_nodes(graph), 1);
    assert_int_equal(cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
    assert_int_equal(used_bytes(0), before);
    assert_int_equal(cuGraphLaunch(exec, one), CUDA_SUCCESS);
    assert_int_equal(used_bytes(0), before + 4 * MIB);
    assert_int_equal(cuGraphDestroy(graph), CUDA_SUCCESS);
    assert_int_equal(used_bytes(0), before + 4 * MIB);
    assert_int_equal(cuGraphExecDestroy(exec), CUDA_SUCCESS);
    assert_int_equal(used_bytes(0), before);
}

static CUgraphExec graph_of(size_t n_nodes)
{
    CUgraph graph;
    CUgraphNode node;
    CUgraphExec exec;
    assert_int_equal(cuGraphCreate(&graph, 0), CUDA_SUCCESS);
    for (size_t i = 0; i < n_nodes; i++)
        assert_int_equal(cuGraphAddEmptyNode(&node, graph, NULL, 0), CUDA_SUCCESS);
    assert_int_equal(cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
    assert_int_equal(cuGraphDestroy(graph), CUDA_SUCCESS);
    return exec;
}

/* Makes a context of its own, in which nodes take so much; its end gives all of it back. */
static CUcontext with_nodes_of(uint64_t bytes)
{
    CUcontext context;
    driver_account->device[0].gpu.graph_node_bytes = bytes;
    assert_int_equal(cuCtxCreate_v2(&context, 0, 0), CUDA_SUCCESS);
    return context;
}

static void end_nodes(CUcontext context, uint64_t before)
{
    assert_int_equal(cuCtxDestroy_v2(context), CUDA_SUCCESS);
    assert_int_equal(used_bytes(0), before);
    driver_account->device[0].gpu.graph_node_bytes = 0;
}

static void test_nodes_of_an_instantiated_graph_are_charged_by_the_table(void **state)
{
    uint64_t before = used_bytes(0);
    (void)state;
    CUcontext context = with_nodes_of(2 * MIB);
    uint64_t start = used_bytes(0);
    CUgraphExec exec = graph_of(2);
    assert_int_equal(used_bytes(0), start + 4 * MIB);
    assert_int_equal(last_event(MT_ACCOUNT_ALLOC)->category, MT_CATEGORY_GRAPHS);
    assert_int_equal(cuGraphExecDestroy(exec), CUDA_SUCCESS);
    end_nodes(context, before);
}

/* vLLM from 0.18 on destroys graphs that it tried, and finds their memory in use afterwards. */
static void test_memory_of_a_destroyed_graph_is_kept_for_the_next(void **state)
{
    uint64_t before = used_bytes(0);
    (void)state;
    CUcontext context = with_nodes_of(2 * MIB);
    uint64_t start = used_bytes(0);
    assert_int_equal(cuGraphExecDestroy(graph_of(3)), CUDA_SUCCESS);
    assert_int_equal(used_bytes(0), start + 6 * MIB);
    CUgraphExec exec = graph_of(3);
    assert_int_equal(used_bytes(0), start + 6 * MIB);
    CUgraphExec more = graph_of(1);
    assert_int_equal(used_bytes(0), start + 8 * MIB);
    assert_int_equal(cuGraphExecDestroy(exec), CUDA_SUCCESS);
    assert_int_equal(cuGraphExecDestroy(more), CUDA_SUCCESS);
    end_nodes(context, before);
}

/* 100 graphs of 10 nodes of 9 KiB are 8.8 MiB, and 300 nodes are 2.6: not a page for each. */
static void test_nodes_of_small_graphs_share_pages(void **state)
{
    uint64_t before = used_bytes(0);
    CUgraphExec exec[101];
    (void)state;
    CUcontext context = with_nodes_of(9 * 1024);
    uint64_t start = used_bytes(0);
    for (size_t i = 0; i < 100; i++)
        exec[i] = graph_of(10);
    assert_int_equal(used_bytes(0), start + 10 * MIB);
    exec[100] = graph_of(300);
    assert_int_equal(used_bytes(0), start + 12 * MIB);
    for (size_t i = 0; i < 101; i++)
        assert_int_equal(cuGraphExecDestroy(exec[i]), CUDA_SUCCESS);
    end_nodes(context, before);
}

/* The graph within takes its two nodes, and is one itself. */
static void test_nodes_of_a_graph_within_are_charged_too(void **state)
{
    uint64_t before = used_bytes(0);
    CUgraph graph, within;
    CUgraphNode node;
    CUgraphExec exec;
    (void)state;
    CUcontext context = with_nodes_of(2 * MIB);
    uint64_t start = used_bytes(0);
    assert_int_equal(cuGraphCreate(&graph, 0), CUDA_SUCCESS);
    assert_int_equal(cuGraphCreate(&within, 0), CUDA_SUCCESS);
    assert_int_equal(cuGraphAddEmptyNode(&node, within, NULL, 0), CUDA_SUCCESS);
    assert_int_equal(cuGraphAddEmptyNode(&node, within, NULL, 0), CUDA_SUCCESS);
    assert_int_equal(cuGraphAddChildGraphNode(&node, graph, NULL, 0, within), CUDA_SUCCESS);
    assert_int_equal(cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
    assert_int_equal(used_bytes(0), start + 6 * MIB);
    assert_int_equal(cuGraphExecDestroy(exec), CUDA_SUCCESS);
    assert_int_equal(cuGraphDestroy(graph), CUDA_SUCCESS);
    assert_int_equal(cuGraphDestroy(within), CUDA_SUCCESS);
    end_nodes(context, before);
}

static void test_what_a_capture_waits_for_can_be_asked_and_changed(void **state)
{
    CUstreamCaptureStatus status;
    const CUgraphNode *last;
    CUgraphNode first;
    CUgraph graph, same;
    uint64_t id;
    size_t n;
    (void)state;
    assert_int_equal(cuStreamBeginCapture_v2(one, RELAXED), CUDA_SUCCESS);
    assert_int_equal(launch(one), CUDA_SUCCESS);
    assert_int_equal(cuStreamGetCaptureInfo_v2(one, &status, &id, &graph, &last, &n), CUDA_SUCCESS);
    assert_int_equal(n, 1);
    first = last[0];
    assert_int_equal(launch(one), CUDA_SUCCESS);
    assert_int_equal(cuStreamUpdateCaptureDependencies(one, &first, 1, 1), CUDA_SUCCESS);
    assert_int_equal(cuStreamGetCaptureInfo_v2(one, &status, NULL, NULL, &last, &n), CUDA_SUCCESS);
    assert_ptr_equal(last[0], first);
    assert_int_equal(cuStreamEndCapture(one, &same), CUDA_SUCCESS);
    assert_ptr_equal(graph, same);
    assert_int_equal(cuStreamUpdateCaptureDependencies(one, &first, 1, 1),
                     CUDA_ERROR_ILLEGAL_STATE);
    assert_int_equal(cuGraphDestroy(graph), CUDA_SUCCESS);
}

/* As cuGraphAddMemAllocNode: addresses at once, memory from a launch until the free node. */
static void test_memory_nodes_are_added_by_the_one_call_too(void **state)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC};
    const int pool[] = {1, 0, 1, 0}; /* pinned, not shared; of device 0 */
    CUgraph graph;
    CUgraphNode alloc, release;
    CUgraphExec exec;
    uint64_t before = used_bytes(0);
    int type;
    (void)state;
    memcpy(params.u.alloc.pool_properties, pool, sizeof pool);
    params.u.alloc.bytesize = 6 * MIB;
    assert_int_equal(cuGraphCreate(&graph, 0), CUDA_SUCCESS);
    assert_int_equal(cuGraphAddNode(&alloc, graph, NULL, 0, &params), CUDA_SUCCESS);
    assert_true(params.u.alloc.dptr);
    assert_int_equal(cuGraphNodeGetType(alloc, &type), CUDA_SUCCESS);
    assert_int_equal(type, CU_GRAPH_NODE_TYPE_MEM_ALLOC);
    assert_int_equal(used_bytes(0), before);
    assert_int_equal(cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
    assert_int_equal(cuGraphLaunch(exec, one), CUDA_SUCCESS);
    assert_int_equal(used_bytes(0), before + 6 * MIB);
    assert_int_equal(cuMemFreeAsync(params.u.alloc.dptr, one), CUDA_SUCCESS);
    assert_int_equal(cuGraphExecDestroy(exec), CUDA_SUCCESS);
    CUgraphNodeParams second = {.type = CU_GRAPH_NODE_TYPE_MEM_FREE,
                                .u = {.free = params.u.alloc.dptr}};
    assert_int_equal(cuGraphAddNode(&release, graph, &alloc, 1, &second), CUDA_SUCCESS);
    assert_int_equal(cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
    assert_int_equal(cuGraphLaunch(exec, one), CUDA_SUCCESS);
    assert_int_equal(used_bytes(0), before);
    assert_int_equal(cuGraphExecDestroy(exec), CUDA_SUCCESS);
    assert_int_equal(cuGraphDestroy(graph), CUDA_SUCCESS);
    params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    assert_int_equal(cuGraphCreate(&graph, 0), CUDA_SUCCESS);
    assert_int_equal(cuGraphAddNode(&alloc, graph, NULL, 0, &params), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(cuGraphDestroy(graph), CUDA_SUCCESS);
}

/* Two rows of 4 bytes, 8 apart, become two rows that follow each other, at each launch anew. */
static void test_a_captured_copy_of_rows_is_done_at_each_launch(void **state)
{
    char rows[16] = "abcd----efgh", packed[9] = "";
    CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = rows,
                          .srcPitch = 8,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstPitch = 4,
                          .WidthInBytes = 4,
                          .Height = 2};
    CUgraph graph;
    CUgraphExec exec;
    (void)state;
    assert_int_equal(cuMemAlloc_v2(&copy.dstDevice, 4096), CUDA_SUCCESS);
    assert_int_equal(cuMemsetD8_v2(copy.dstDevice, '.', 8), CUDA_SUCCESS);
    assert_int_equal(cuStreamBeginCapture_v2(one, RELAXED), CUDA_SUCCESS);
    assert_int_equal(cuMemcpy2DAsync_v2(&copy, one), CUDA_SUCCESS);
    assert_int_equal(cuStreamEndCapture(one, &graph), CUDA_SUCCESS);
    assert_int_equal(count_nodes(graph), 1);
    assert_int_equal(cuMemcpyDtoH_v2(packed, copy.dstDevice, 8), CUDA_SUCCESS);
    assert_string_equal(packed, "........");
    assert_int_equal(cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
    assert_int_equal(cuGraphLaunch(exec, one), CUDA_SUCCESS);
    assert_int_equal(cuMemcpyDtoH_v2(packed, copy.dstDevice, 8), CUDA_SUCCESS);
    assert_string_equal(packed, "abcdefgh");
    rows[8] = 'E';
    assert_int_equal(cuGraphLaunch(exec, one), CUDA_SUCCESS);
    assert_int_equal(cuMemcpyDtoH_v2(packed, copy.dstDevice, 8), CUDA_SUCCESS);
    assert_string_equal(packed, "abcdEfgh");
    assert_int_equal(cuGraphExecDestroy(exec), CUDA_SUCCESS);
    assert_int_equal(cuGraphDestroy(graph), CUDA_SUCCESS);
    assert_int_equal(cuMemFree_v2(copy.dstDevice), CUDA_SUCCESS);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_captured_work_becomes_nodes_that_wait_for_each_other),
        TEST(test_a_forked_stream_takes_part_and_must_join),
        TEST(test_work_that_did_not_join_fails_the_capture),
        TEST(test_waiting_for_a_captured_stream_spoils_the_capture),
        TEST(test_the_default_stream_cannot_be_captured_nor_wait_for_a_capture),
        TEST(test_captures_cannot_merge_nor_wait_for_what_was_not_captured),
        TEST(test_unsafe_calls_are_forbidden_unless_the_thread_is_relaxed),
        TEST(test_another_thread_cannot_end_a_capture),
        TEST(test_a_stream_destroyed_in_its_capture_leaves_none_behind),
        TEST(test_a_launched_graph_calls_its_host_functions_in_order),
        TEST(test_a_graph_with_a_circle_is_not_instantiated),
        TEST(test_an_update_wants_the_same_shape),
        TEST(test_a_user_object_lives_until_the_last_graph_that_has_it),
        TEST(test_memory_of_a_graph_is_taken_by_its_launch),
        TEST(test_memory_nodes_are_added_by_the_one_call_too),
        TEST(test_a_captured_copy_of_rows_is_done_at_each_launch),
        TEST(test_nodes_of_an_instantiated_graph_are_charged_by_the_table),
        TEST(test_memory_of_a_destroyed_graph_is_kept_for_the_next),
        TEST(test_nodes_of_small_graphs_share_pages),
        TEST(test_nodes_of_a_graph_within_are_charged_too),
        TEST(test_what_a_capture_waits_for_can_be_asked_and_changed),
    };
    make_rehearsal(1, 8 * GIB);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    drop_rehearsal();
    return failed;
}
