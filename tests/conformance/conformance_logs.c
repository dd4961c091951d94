/* SPDX-License-Identifier: MIT */
/* Published runs of llama.cpp and its kin against the library's estimates of the same runs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <memtally/memtally.h>
#include <memtally/predict.h>

#define FIELDS_MAX 40
#define DEVICES_MAX 20
#define MIB 1048576.0
static char *names[FIELDS_MAX]; static int n_names;
static char *vals[FIELDS_MAX];
static const char *get(const char *n){ for(int i=0;i<n_names;i++) if(!strcmp(names[i],n)) return vals[i]; abort(); }
static int cut(char *line,char **out){int n=0; line[strcspn(line,"\n")]=0; for(char*p=line;p&&n<FIELDS_MAX;){ out[n++]=p; p=strchr(p,'\t'); if(p)*p++=0;} return n;}
static int list(const char*s,double*o){int n=0; if(!*s) return 0; for(;;){ o[n++]=*s&&*s!=','?strtod(s,0):-1; s=strchr(s,','); if(!s||n>=DEVICES_MAX) return n; s++; } }
static double rowof(const struct mt_tally_place*p,enum mt_category c){const struct mt_tally_row*r=mt_tally_row_of(p,c); return r? (double)r->allocated_bytes/MIB:0;}
int main(int argc,char**argv){
 char path[512]; snprintf(path,sizeof path,"%s/cases.tsv",argv[1]); FILE*f=fopen(path,"r"); static char head[8192],line[8192];
 if(!fgets(head,sizeof head,f)) return 1; n_names=cut(head,names);
 while(fgets(line,sizeof line,f)){ cut(line,vals);
  if(argc>2&&!strstr(argv[2],get("id"))) continue;
  struct mt_predict_settings s={0}; char eng[64]; int build=atoi(get("version"));
  if(build) snprintf(eng,sizeof eng,"%s@%d",get("engine"),build); else snprintf(eng,sizeof eng,"%s@3772",get("engine"));
  s.engine=eng; s.context_tokens=strtoull(get("context"),0,10); s.batch=strtoull(get("batch"),0,10); s.ubatch=strtoull(get("ubatch"),0,10); s.sequences=strtoull(get("sequences"),0,10);
  s.kv_type_k=*get("type_k")?get("type_k"):NULL; s.kv_type_v=*get("type_v")?get("type_v"):NULL;
  const char*fa=get("flash"); s.flash_attention=!strcmp(fa,"on")?MT_SWITCH_ON:!strcmp(fa,"off")?MT_SWITCH_OFF:MT_SWITCH_AUTO;
  s.mla_mode=*get("mla")?strtoull(get("mla"),0,10):MT_UNKNOWN; s.attn_max_batch=strtoull(get("amb"),0,10);
  if(strcmp(get("engine"),"ik_llama.cpp")) {s.mla_mode=MT_UNKNOWN; s.attn_max_batch=0;}
  s.has_gpu_layers=1; s.gpu_layers=!strcmp(get("layers"),"all")?MT_ALL:strtoull(get("layers"),0,10);
  static uint64_t dev[DEVICES_MAX]; s.n_devices=(size_t)atoi(get("devices")); for(int i=0;i<DEVICES_MAX;i++)dev[i]=1ull<<41; s.device_bytes=dev; if(!s.n_devices) s.gpu_layers=0;
  double sp[DEVICES_MAX]; int nsp=list(get("split_of_layers"),sp); if(nsp){s.tensor_split=sp;s.n_tensor_split=(size_t)nsp;}
  s.program=!strcmp(get("program"),"bench")?MT_PROGRAM_BENCH:MT_PROGRAM_SERVER; s.kv_on_host=atoi(get("kv_on_host")); struct mt_tensor_override o={"exps","CPU"}; if(atoi(get("experts_on_host"))){s.overrides=&o;s.n_overrides=1;}
  snprintf(path,sizeof path,"%s/%s",argv[1],get("model")); struct mt_model*m; struct mt_error e; struct mt_estimate*est;
  if(mt_model_open(path,NULL,&m,&e)){printf("%s open: %s\n",get("id"),e.text);continue;}
  if(mt_estimate_create(m,&s,&est,&e)){printf("%s %s: %s\n",get("id"),get("family"),e.text);mt_model_close(m);continue;}
  double kv[DEVICES_MAX],co[DEVICES_MAX]; int nk=list(get("kv_d"),kv),nc=list(get("compute_d"),co);
  printf("%-6s %-9s %-10s b%d c%s u%s fa%s mla%s amb%s %s exp%s |",get("id"),get("engine"),get("family"),build,get("context"),get("ubatch"),fa,get("mla"),get("amb"),get("model")+0,get("experts_on_host"));
  size_t nd=0; for(size_t i=0;i<est->tally.n_places;i++){const struct mt_tally_place*p=&est->tally.places[i]; int host=!strcmp(p->place,"host");
   double k=rowof(p,MT_CATEGORY_KV_CACHE),c=rowof(p,MT_CATEGORY_ACTIVATIONS);
   if(host){ double mk=atof(get("kv_h")),mc=atof(get("compute_h"))+atof(get("output")); printf(" H kv %.2f/%.2f%s comp %.2f/%.2f%s",k,mk,k-mk<.6&&mk-k<.6?"":" KV!",c,mc,c-mc<.5&&mc-c<.5?"":" X"); }
   else { double mk=(int)nd<nk?kv[nd]:-1,mc=(int)nd<nc?co[nd]:-1; if(nd<4)printf(" D%zu kv %.2f/%.2f%s comp %.2f/%.2f%s",nd,k,mk,k-mk<.6&&mk-k<.6?"":" KV!",c,mc,c-mc<.5&&mc-c<.5?"":" X"); nd++; } }
  printf("\n"); if(argc>3) for(size_t i=0;i<est->n_terms;i++) if(strstr(est->terms[i].rule,"compute")) printf("     %s %s\n",est->terms[i].place,est->terms[i].formula);
  mt_estimate_destroy(est); mt_model_close(m); }
 return 0; }
